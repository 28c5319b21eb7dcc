"""Charts with axes, each as a scene and as a plotly figure: heat maps, lines, points, bars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recollect.core.types import JsonObject
from recollect.views.palette import COLOURS, SERIES, colour_of
from recollect.views.picture import Picture
from recollect.views.scene import CONTROLS, FONT, Scene, signed, strength

Values = NDArray[Any]
TOP = 56.0  # above a chart: its title
SCALES = {
    "strength": [[0, "#fcfbf8"], [1, COLOURS["accent"]]],
    "signed": [[0, COLOURS["orange"]], [0.5, "#fcfbf8"], [1, COLOURS["blue"]]],
}


@dataclass(frozen=True)
class PlotCurve:
    """One line of a chart."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    dashed: bool = False
    colour: str | None = None  # None: the next of the palette


def letters(text: str) -> float:
    """Return a text's width in units of a Latin letter: a Han character is two wide."""
    return sum(1.8 if ord(one) > 0x2E7F else 1.0 for one in text)


def visible(text: str) -> str:
    """Return a token as it is shown: blanks and line ends have signs."""
    shown = {" ": "␣", "\n": "⏎", "\t": "⇥", "": "∅"}.get(text, text.strip(" ") or "␣")
    return shown.translate(CONTROLS)


def heat(
    title: str,
    values: Values,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    row_title: str = "",
    column_title: str = "",
    is_signed: bool = False,
    most: float | None = None,
    tall: float | None = None,
) -> Picture:
    """Return a map of values (rows, columns); signed ones are orange below zero and blue above."""
    finite = np.abs(values[np.isfinite(values)])
    most = most or (float(finite.max()) if finite.size and finite.max() > 0 else 1.0)
    rows, columns = [visible(r) for r in rows], [visible(c) for c in columns]
    cell = min(34.0, max(720 / max(len(columns), 1), 6.0))
    height = tall or min(cell, 34.0)
    row_step, column_step = _step(len(rows), height, 12), _step(len(columns), cell, 8)
    left = 28 + (18 if row_title else 0) + 7.6 * max((letters(r) for r in rows[::row_step]), default=0)
    is_turned = max((letters(c) for c in columns[::column_step]), default=0) * 7.6 > cell * column_step
    top = TOP + (22 if column_title else 0) + (7.6 * max(map(letters, columns), default=0) if is_turned else 14)
    scene = Scene(left + cell * len(columns) + 24, top + height * len(rows) + 20, title)
    scene.width = max(scene.width, 40 + 8.6 * letters(title))
    scene.words(24, 26, title, size=16, anchor="start", bold=True)
    if column_title:
        scene.words(left, TOP, column_title, size=12, colour="soft", anchor="start")
    if row_title:
        scene.words(18, top + height * len(rows) / 2, row_title, size=12, colour="soft", turn=-90)
    for i in range(0, len(columns), column_step):
        x = left + (i + 0.5) * cell
        if is_turned:
            scene.words(x, top - 8, columns[i], size=12, anchor="start", turn=-90)
        else:
            scene.words(x, top - 12, columns[i], size=12)
    for r in range(len(rows)):
        if r % row_step == 0:
            scene.words(left - 8, top + (r + 0.5) * height, rows[r], size=12, anchor="end")
        for c in range(len(columns)):
            value = float(values[r, c])
            colour = signed(value / most) if is_signed else strength(value / most)
            hint = f"{rows[r]} · {columns[c]}: {value:.3g}"
            scene.cell(left + c * cell, top + r * height, cell - 0.6, height - 0.6, colour, hint)
    ends = {"zmin": -most, "zmax": most} if is_signed else {"zmin": 0.0, "zmax": most}
    trace = {
        "type": "heatmap",
        "z": [[_plain(v) for v in row] for row in values.tolist()],
        "text": [[f"{r} · {c}" for c in columns] for r in rows],
        "hovertemplate": "%{text}: %{z:.3g}<extra></extra>",
        "colorscale": SCALES["signed" if is_signed else "strength"],
        "xgap": 1,
        "ygap": 1,
        **ends,
    }
    across = {"tickvals": list(range(len(columns))), "ticktext": columns, "title": {"text": column_title}}
    down = {"tickvals": list(range(len(rows))), "ticktext": rows, "title": {"text": row_title}}
    layout = _layout(title, scene) | {"xaxis": across | {"side": "top"}, "yaxis": down | {"autorange": "reversed"}}
    return Picture(title, scene, {"data": [trace], "layout": layout})


def lines(
    title: str,
    curves: Sequence[PlotCurve],
    *,
    x_title: str,
    y_title: str,
    is_log: bool = False,
    ticks: Sequence[tuple[float, str]] | None = None,
    height: float = 420,
) -> Picture:
    """Return curves with their names at their right ends; with `is_log` the vertical axis is logarithmic."""
    kept = [(one, [(x, y) for x, y in zip(one.x, one.y, strict=True) if _is_drawn(y, is_log)]) for one in curves]
    points = [point for _, some in kept for point in some] or [(0.0, 1.0), (1.0, 1.0)]
    xs, ys = [x for x, _ in points], [math.log10(y) if is_log else y for _, y in points]
    low, high = _ends(ys, is_log)
    names = max((letters(one.name) for one in curves), default=0)
    scene = Scene(820, height, title)
    left, right, top, bottom = 78.0, 820 - 24 - 7.8 * names, TOP + 30, height - 54
    x_low, x_high = min(xs), max(max(xs), min(xs) + 1e-9)

    def place(x: float, y: float) -> tuple[float, float]:
        share = ((math.log10(y) if is_log else y) - low) / (high - low)
        return left + (x - x_low) / (x_high - x_low) * (right - left), bottom - share * (bottom - top)

    scene.words(24, 26, title, size=16, anchor="start", bold=True)
    scene.words(24, TOP + 4, y_title, size=12, colour="soft", anchor="start")
    scene.words((left + right) / 2, height - 14, x_title, size=12, colour="soft")
    for tick in _ticks(low, high, is_log):
        y = place(x_low, 10.0**tick if is_log else tick)[1]
        scene.line((left, y), (right, y), colour="grid", width=1)
        scene.words(left - 8, y, _power(tick) if is_log else f"{tick:g}", size=12, colour="soft", anchor="end")
    is_whole = all(float(x).is_integer() for x in xs)
    along = [t for t in _ticks(x_low, x_high, False, is_whole=is_whole) if x_low <= t <= x_high]
    for x, label in ticks or [(t, f"{t:g}") for t in along]:
        scene.words(place(x, 10.0**low if is_log else low)[0], bottom + 16, label, size=12, colour="soft")
    colours = [one.colour or SERIES[number % len(SERIES)] for number, one in enumerate(curves)]
    ends = []
    for number, (colour, (one, some)) in enumerate(zip(colours, kept, strict=True)):
        if some:
            places = [place(*point) for point in some]
            is_covering = any(some == earlier for _, earlier in kept[:number])  # dashes let the other one show through
            scene.line(*places, colour=colour, width=2.2, dashed=one.dashed or is_covering)
            ends.append((places[-1][1], one.name, colour))
    ends.sort()
    for y, (_, name, colour) in zip(apart([y for y, _, _ in ends], bottom), ends, strict=True):
        scene.words(right + 10, y, name, size=13, colour=colour, anchor="start", bold=True)
    data = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": one.name,
            "x": [float(x) for x in one.x],
            "y": [_plain(float(y)) if _is_drawn(y, is_log) else None for y in one.y],
            "line": {"color": colour_of(colour), "dash": "dash" if one.dashed else "solid"},
        }
        for one, colour in zip(curves, colours, strict=True)
    ]
    across: JsonObject = {"title": {"text": x_title}, "gridcolor": COLOURS["grid"]}
    if ticks is not None:
        across |= {"tickvals": [x for x, _ in ticks], "ticktext": [label for _, label in ticks]}
    down = {"title": {"text": y_title}, "type": "log" if is_log else "linear", "gridcolor": COLOURS["grid"]}
    if is_log:
        down |= {"exponentformat": "power"}
    return Picture(title, scene, {"data": data, "layout": _layout(title, scene) | {"xaxis": across, "yaxis": down}})


def apart(heights: Sequence[float], lowest: float, least: float = 17.0) -> list[float]:
    """Return heights, from the top down, moved so that neighbours are `least` apart and none is below `lowest`."""
    found: list[float] = []
    for y in heights:
        found.append(max(y, found[-1] + least) if found else y)
    limit = lowest
    for i in reversed(range(len(found))):
        found[i] = min(found[i], limit)
        limit = found[i] - least
    return found


def disc(title: str, groups: Sequence[tuple[str, Values]], *, inside: str, outside: str) -> Picture:
    """Return points (M, 2) of the complex plane, by group, over the unit disc."""
    most = max([1.15, *(float(np.abs(points).max()) * 1.08 for _, points in groups if points.size)])
    scene = Scene(640, 560, title)
    middle, radius = (300.0, 305.0), 225 / most
    scene.words(24, 26, title, size=16, anchor="start", bold=True)
    scene.circle(*middle, radius, fill="raised", line="soft")
    scene.line((middle[0] - 235, middle[1]), (middle[0] + 235, middle[1]), colour="grid", width=1)
    scene.line((middle[0], middle[1] - 235), (middle[0], middle[1] + 235), colour="grid", width=1)
    scene.words(middle[0] + radius + 8, middle[1] + 14, "1", size=12, colour="soft", anchor="start")
    data = []
    for number, (name, points) in enumerate(groups):
        colour = SERIES[number % len(SERIES)]
        for re, im in points.tolist():
            scene.circle(middle[0] + re * radius, middle[1] - im * radius, 3.4, fill=colour, line="paper")
        scene.circle(560, 70 + 24 * number, 5, fill=colour, line="paper")
        scene.words(572, 70 + 24 * number, name, size=13, anchor="start")
        scene.width = max(scene.width, 590 + 7.8 * letters(name))
        marker = {"color": colour_of(colour), "size": 7}
        data.append({"type": "scatter", "mode": "markers", "name": name, "marker": marker})
        data[-1] |= {"x": points[:, 0].tolist(), "y": points[:, 1].tolist()}
    for number, words in enumerate((inside, outside)):  # beside the disc: dots may lie anywhere on it
        scene.words(560, 94 + 24 * len(groups) + 22 * number, words, size=13, colour="soft", anchor="start")
        scene.width = max(scene.width, 590 + 7.8 * letters(words))
    circle = {"type": "circle", "x0": -1, "x1": 1, "y0": -1, "y1": 1, "line": {"color": COLOURS["soft"]}}
    ends = {"range": [-most, most], "gridcolor": COLOURS["grid"]}
    layout = _layout(title, scene) | {"shapes": [circle], "xaxis": ends, "yaxis": ends | {"scaleanchor": "x"}}
    return Picture(title, scene, {"data": data, "layout": layout})


def bars(title: str, names: Sequence[str], values: Sequence[float], *, x_title: str = "") -> Picture:
    """Return horizontal bars, one a row, with their values."""
    names = [visible(one) for one in names]
    left = 40 + 8.2 * max(map(letters, names), default=0)
    scene = Scene(max(560, 60 + 8.6 * letters(title)), TOP + 30 * len(names) + 40, title)
    scene.words(24, 26, title, size=16, anchor="start", bold=True)
    most = max([abs(v) for v in values] or [1.0]) or 1.0
    for i, (name, value) in enumerate(zip(names, values, strict=True)):
        y = TOP + 30 * i + 8
        long = (scene.width - left - 90) * abs(value) / most
        scene.words(left - 10, y + 10, name, size=14, anchor="end")
        scene.cell(left, y, max(long, 0.5), 20, COLOURS["accent" if value >= 0 else "orange"], f"{name}: {value:.3g}")
        scene.words(left + long + 8, y + 10, f"{value:.3g}", size=12, colour="soft", anchor="start")
    scene.words(left, scene.height - 16, x_title, size=12, colour="soft", anchor="start")
    trace = {"type": "bar", "orientation": "h", "x": [float(v) for v in values], "y": list(range(len(names)))}
    down = {"tickvals": list(range(len(names))), "ticktext": names, "autorange": "reversed"}
    layout = _layout(title, scene) | {"yaxis": down, "xaxis": {"title": {"text": x_title}}}
    return Picture(title, scene, {"data": [trace | {"marker": {"color": COLOURS["accent"]}}], "layout": layout})


def stacked(title: str, pictures: Sequence[Picture]) -> Picture:
    """Return pictures below each other in one scene, and as plotly subplots that share nothing."""
    scene = Scene(max(one.scene.width for one in pictures), sum(one.scene.height for one in pictures), title)
    data: list[JsonObject] = []
    layout = _layout(title, scene)
    top = 0.0
    for number, one in enumerate(pictures, 1):
        scene.marks += [moved(mark, 0.0, top) for mark in one.scene.marks]
        end = "" if number == 1 else str(number)
        low, high = 1 - (top + one.scene.height) / scene.height, 1 - top / scene.height
        own = one.plotly()
        data += [trace | {"xaxis": f"x{end}", "yaxis": f"y{end}"} for trace in own["data"]]
        layout[f"xaxis{end}"] = own["layout"]["xaxis"] | {"anchor": f"y{end}"}
        layout[f"yaxis{end}"] = own["layout"]["yaxis"] | {"domain": [max(low, 0.0) + 0.03, high - 0.05]}
        top += one.scene.height
    return Picture(title, scene, {"data": data, "layout": layout})


def moved(mark: JsonObject, right: float, down: float) -> JsonObject:
    """Return a mark at another place."""
    if "points" in mark:
        return mark | {"points": tuple((x + right, y + down) for x, y in mark["points"])}
    return mark | {"x": mark["x"] + right, "y": mark["y"] + down}


def _layout(title: str, scene: Scene) -> JsonObject:
    return {
        "title": {"text": title},
        "width": round(max(scene.width, 480)),
        "height": round(max(scene.height, 320)),
        "paper_bgcolor": COLOURS["paper"],
        "plot_bgcolor": COLOURS["paper"],
        "font": {"family": FONT.replace("'", ""), "color": COLOURS["ink"]},
    }


def _step(count: int, size: float, least: float) -> int:
    """Return how many rows or columns lie between two names, so that none touch."""
    return max(1, math.ceil(least / size)) if count else 1


def _is_drawn(value: float, is_log: bool) -> bool:
    return math.isfinite(value) and (value > 0 or not is_log)


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _ends(values: Sequence[float], is_log: bool) -> tuple[float, float]:
    low, high = min(values), max(values)
    if is_log:
        return math.floor(low), max(math.ceil(high), math.floor(low) + 1)
    low = min(low, 0.0)
    ticks = _ticks(low, high if high > low else low + 1.0, False)
    return ticks[0], ticks[-1]


def _ticks(low: float, high: float, is_log: bool, *, is_whole: bool = False) -> list[float]:
    """Return round numbers that enclose an interval; of logarithms whole ones, at most eight."""
    if is_log:
        each = max(1, math.ceil((high - low) / 8))
        return [float(t) for t in range(round(low), round(high) + 1, each)]
    rough = max(high - low, 1e-12) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    factors = (1, 2, 5, 10) if is_whole else (1, 2, 2.5, 5, 10)
    step = next(power * factor for factor in factors if power * factor >= rough * 0.999)
    step = max(step, 1.0) if is_whole else step
    return [round(n * step, 12) for n in range(math.floor(low / step), math.ceil(high / step) + 1)]


def _power(exponent: float) -> str:
    digits = str(round(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return {0: "1", 1: "10"}.get(round(exponent), f"10{digits}")
