"""The page of a comparison: one self-contained file in both languages."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from markupsafe import Markup

from recollect.comparison.outcome import Comparison, Row, in_words, micros_in_words
from recollect.core.serialize import write_file
from recollect.runs.progress import bytes_in_words
from recollect.views.axes import axis
from recollect.views.bilingual import Bilingual
from recollect.views.line_chart import Line, line_chart, series
from recollect.views.page import render
from recollect.views.scatter import Point, scatter
from recollect.views.table import Words, table

FEWEST = 2  # points of a curve
SMOOTH = 64  # points of the loss by position, at most


def write_report(found: Comparison, path: Path) -> None:
    """Write the page."""
    page = render(
        "compare.html.j2",
        found.machine,
        found=found,
        budget=found.plan.budget_in_words,
        command=found.plan.command(str(found.folder)),
        results=_results(found),
        pareto=_paretos(found),
        curves=_curves(found),
        contexts=_contexts(found),
        growths=_growths(found),
        samples=[row for row in found.rows if row.sample[1]],
        left=[problem for row in found.rows for problem in row.problems],
    )
    write_file(path, page.encode())


def _results(found: Comparison) -> Markup:
    """Return the table of all figures."""
    columns: list[Words] = [
        Bilingual("model", "模型"),
        str(found.measure.get("measure", "")),
        Bilingual("95 % interval", "95% 区间"),
        Bilingual("p against the best", "与最佳相比的 p"),
        Bilingual("parameters", "参数量"),
        Bilingual("trained, symbols/s", "训练，符号/秒"),
        Bilingual("peak memory", "内存峰值"),
        Bilingual("memory of one sequence", "单条序列的记忆"),
        Bilingual("read, µs a symbol", "读取，微秒/符号"),
    ]
    rows = [("best" if row.name == found.judged.winner else "", _cells(found, row)) for row in found.rows]
    empty = [""] * (len(columns) - 2)
    rows += [("baseline", [f"({one.name})", f"{one.value:.4g}", *empty]) for one in found.baselines]
    return table(columns, rows)


def _cells(found: Comparison, row: Row) -> Sequence[Words]:
    low, high = row.interval
    interval = f"{low:.4g} – {high:.4g}" if math.isfinite(low) and math.isfinite(high) else ""
    chance = found.judged.chances.get(row.name)
    held = row.bytes_typical
    return [
        row.name,
        in_words(row),
        interval,
        "" if chance is None else f"{chance:.3f}",
        _number(row, "parameters", "{:,.0f}"),
        _number(row, "speed", "{:,.0f}"),
        bytes_in_words(int(row.figures["peak_bytes"])) if "peak_bytes" in row.figures else "",
        "" if held is None else bytes_in_words(int(held)),
        micros_in_words(row),
    ]


def _number(row: Row, name: str, form: str) -> str:
    return form.format(row.figures[name]) if name in row.figures else ""


# ---- figures ----------------------------------------------------------------------------------------


def _paretos(found: Comparison) -> list[Markup]:
    """Return quality against time, and against memory."""
    lower = bool(found.measure.get("lower_is_better", True))
    costs: list[tuple[Bilingual, Callable[[Row], float | None]]] = [
        (Bilingual("training seconds", "训练秒数"), lambda row: row.figures.get("seconds")),
        (Bilingual("µs to read a symbol", "读取一个符号的微秒数"), lambda row: _micros(row)),
        (Bilingual("bytes remembered", "记忆字节数"), lambda row: row.bytes_typical),
    ]
    drawn = []
    for title, cost in costs:
        if found.plan.is_by_seconds and title.en == "training seconds":
            continue
        points = [
            Point(row.name, x, row.mean, place + 1, series(place), _bounds(row))
            for place, row in enumerate(found.rows)
            if row.values and (x := cost(row)) is not None and x > 0
        ]
        if len(points) >= FEWEST:
            drawn.append(_pareto(found, title, points, lower))
    return drawn


def _micros(row: Row) -> float | None:
    seconds = row.figures.get("read_seconds")
    return None if seconds is None else 1e6 * seconds


def _bounds(row: Row) -> tuple[float, float] | None:
    return row.interval if all(map(math.isfinite, row.interval)) else None


def _pareto(found: Comparison, cost: Bilingual, points: Sequence[Point], lower: bool) -> Markup:
    measure = str(found.measure.get("measure", ""))
    heights = [point.y for point in points]
    margin = 0.12 * (max(heights) - min(heights)) or 0.1
    y = axis(Bilingual(measure, measure), [min(heights) - margin, max(heights) + margin])
    x = axis(cost, [point.x for point in points], is_log=True)
    title = Bilingual(f"{measure} against {cost.en}", f"{measure} 与{cost.zh}")
    return scatter(title, points, x, y, low_is_good=lower)


def _curves(found: Comparison) -> list[Markup]:
    """Return the validation figure by symbols trained on and by seconds, and the loss by position."""
    measure = str(found.measure.get("measure", ""))
    valid = Bilingual(f"{measure}, validation", f"{measure}（验证集）")
    kinds = ((1, Bilingual("symbols trained on", "训练所用的符号数")), (2, Bilingual("training seconds", "训练秒数")))
    drawn = []
    for column, title in kinds:
        lines = [
            Line(row.name, [(point[column], point[3]) for point in row.curve], series(place), has_marks=False)
            for place, row in enumerate(found.rows)
            if len(row.curve) >= FEWEST
        ]
        drawn += _lines(Bilingual(f"{valid.en} by {title.en}", f"{valid.zh}随{title.zh}的变化"), lines, title, valid)
    positions = Bilingual("position in the sequence", "序列中的位置")
    lines = [
        Line(row.name, _thinned(row.by_position), series(place), has_marks=False)
        for place, row in enumerate(found.rows)
        if len(row.by_position) >= FEWEST
    ]
    test = Bilingual(f"{measure}, test", f"{measure}（测试集）")
    return drawn + _lines(Bilingual(f"{test.en} by position", f"{test.zh}随位置的变化"), lines, positions, test)


def _thinned(values: Sequence[float]) -> list[tuple[float, float]]:
    """Return means of neighbouring positions, few enough to be seen."""
    size = -(-len(values) // SMOOTH)
    starts = range(0, len(values), size)
    return [(start + 1.0, sum(values[start : start + size]) / len(values[start : start + size])) for start in starts]


def _lines(title: Bilingual, lines: Sequence[Line], x: Bilingual, y: Bilingual, is_log: bool = False) -> list[Markup]:
    points = [point for line in lines for point in line.points if all(map(math.isfinite, point))]
    if not points:
        return []
    across = axis(x, [point[0] for point in points], is_log, is_tight=True)
    heights = [point[1] for point in points]
    return [line_chart(title, lines, across, axis(y, heights, is_log))]


def _contexts(found: Comparison) -> list[Markup]:
    """Return time and bytes for each symbol against the symbols read before."""
    context = Bilingual("symbols read before", "此前已读的符号数")
    kinds = (
        ("seconds", 1e6, Bilingual("µs for one more symbol", "再读一个符号的微秒数")),
        ("bytes", 1.0, Bilingual("bytes remembered", "记忆字节数")),
    )
    drawn = []
    for key, times, title in kinds:
        lines = [
            Line(row.name, [(one["context"], times * one[key]) for one in row.contexts if one[key] > 0], series(place))
            for place, row in enumerate(found.rows)
        ]
        lines = [line for line in lines if len(line.points) >= FEWEST]
        drawn += _lines(title, lines, context, title, is_log=True)
    return drawn


def _growths(found: Comparison) -> Markup | None:
    """Return the table of the shortest and the longest context, with the fitted exponents."""
    shown = [row for row in found.rows if len(row.contexts) >= FEWEST]
    if not shown:
        return None
    columns: list[Words] = [
        Bilingual("model", "模型"),
        Bilingual("symbols read before", "此前已读的符号数"),
        Bilingual("µs for one more", "再读一个的微秒数"),
        Bilingual("grows with the power", "增长指数"),
        Bilingual("bytes remembered", "记忆字节数"),
        Bilingual("grows with the power", "增长指数"),
    ]
    return table(columns, [("", _growth_of(row)) for row in shown])


def _growth_of(row: Row) -> list[Words]:
    first, last = row.contexts[0], row.contexts[-1]
    cells: list[Words] = [row.name, f"{first['context']:,} – {last['context']:,}"]
    for name, times in (("seconds", 1e6), ("bytes", 1.0)):
        slope = row.slopes.get(name)
        cells.append(f"{times * first[name]:,.0f} – {times * last[name]:,.0f}")
        cells.append("" if slope is None else f"{round(slope, 2) + 0.0:.2f}")
    return cells
