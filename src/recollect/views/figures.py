"""Figures: plain functions from data to what plotly draws, `data` and `layout`, as plain data.

A page resolves two things when it draws, because the reader may change them: a colour `var(--name)` is that of the
page's style, light or dark, and a text {"en": …, "zh": …} is in the page's language.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

Points: TypeAlias = Sequence[tuple[float, float]]
Figure: TypeAlias = dict[str, Any]

SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "star", "triangle-down", "pentagon", "cross")
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'PingFang SC', 'Noto Sans CJK SC', sans-serif"
LABEL_GAP = 0.045  # of the figure's height, between two labels


def loss_curves(curves: Mapping[str, Points], baseline: float, seconds: float) -> Figure:
    """Draw held-out loss against learning seconds; what stops learning early keeps its last loss to the end."""
    ends = [points[-1][1] for points in curves.values()]
    low, high = min(ends) - 0.1, max(baseline, *ends) + 0.25
    traces = [_trace(i, name, points) for i, (name, points) in enumerate(curves.items())]
    last = max(seconds, *(points[-1][0] for points in curves.values()))
    for trace in traces:
        trace["x"], trace["y"] = [*trace["x"], last], [*trace["y"], trace["y"][-1]]
        trace["hovertemplate"] = "%{y:.3f}, %{x:.1f} s"
    layout = _layout({"en": "learning seconds", "zh": "学习秒数"}, {"en": "nats per character", "zh": "每字符奈特数"})
    layout["xaxis"] |= {"range": [0, last], "ticksuffix": " s"}
    layout["yaxis"] |= {"range": [low, high]}
    layout["shapes"] = [_dashed(baseline)]
    names = [_name(trace) for trace in traces] + [({"en": "unigram", "zh": "一元模型"}, "var(--soft)")]
    layout["annotations"] = _labels(names, [*ends, baseline], LABEL_GAP * (high - low))
    return {"data": traces, "layout": layout}


def memory_growth(sizes: Mapping[str, Points]) -> Figure:
    """Draw bytes of memory against symbols read, both logarithmic."""
    traces = [_trace(i, name, points) for i, (name, points) in enumerate(sizes.items())]
    for trace in traces:
        trace["hovertemplate"] = "%{y:,} B, %{x:,}"
    values = [math.log10(y) for points in sizes.values() for _, y in points]
    steps = sorted({x for points in sizes.values() for x, _ in points})
    low, high = min(values) - 0.3, max(values) + 0.3
    layout = _layout({"en": "characters read", "zh": "已读字符数"}, {"en": "bytes remembered", "zh": "记忆字节数"})
    layout["xaxis"] |= {
        "tickvals": steps,
        "ticktext": [_short(n) for n in steps],
        "type": "log",
        "range": [math.log10(steps[0]) - 0.05, math.log10(steps[-1])],
    }
    ticks = [10**n for n in range(math.ceil(low), math.floor(high) + 1)]
    layout["yaxis"] |= {"tickvals": ticks, "ticktext": [_bytes(n) for n in ticks], "type": "log", "range": [low, high]}
    ends = [math.log10(trace["y"][-1]) for trace in traces]
    layout["annotations"] = _labels([_name(trace) for trace in traces], ends, LABEL_GAP * (high - low))
    return {"data": traces, "layout": layout}


def attention_map(weights: Sequence[Sequence[float]], sources: Sequence[str], targets: Sequence[str]) -> Figure:
    """Draw how much each target symbol (a row) looks at each source symbol (a column)."""
    scale = [[0, "var(--paper)"], [1, "var(--series-1)"]]
    trace = {"type": "heatmap", "z": [list(row) for row in weights], "zmin": 0, "zmax": 1, "colorscale": scale}
    trace |= {"showscale": False, "xgap": 1, "ygap": 1, "hovertemplate": "%{z:.3f}<extra></extra>"}
    layout = _layout({"en": "source", "zh": "源"}, {"en": "target", "zh": "目标"})
    layout["xaxis"] |= {"tickvals": list(range(len(sources))), "ticktext": list(sources), "side": "top"}
    layout["yaxis"] |= {"tickvals": list(range(len(targets))), "ticktext": list(targets), "autorange": "reversed"}
    layout |= {"height": 120 + 26 * len(targets), "margin": {"l": 0, "r": 12, "t": 96, "b": 12}}
    return {"data": [trace], "layout": layout}


def spread(values: Sequence[float], gap: float) -> list[float]:
    """Move values apart to at least `gap`; those that were too close stay around their own middle."""
    groups: list[list[float]] = []
    for value in sorted(values):
        groups.append([value])
        while len(groups) > 1 and _places(groups[-1], gap)[0] - _places(groups[-2], gap)[-1] < gap:
            groups[-2:] = [groups[-2] + groups[-1]]
    places = [place for group in groups for place in _places(group, gap)]
    order = sorted(range(len(values)), key=lambda i: values[i])
    return [places[order.index(i)] for i in range(len(values))]


def _places(group: list[float], gap: float) -> list[float]:
    middle = sum(group) / len(group)
    return [middle + gap * (i - (len(group) - 1) / 2) for i in range(len(group))]


def _trace(index: int, name: str, points: Points) -> dict[str, Any]:
    colour = f"var(--series-{index % len(SYMBOLS) + 1})"
    return {
        "name": name,
        "x": [x for x, _ in points],
        "y": [y for _, y in points],
        "mode": "lines+markers",
        "line": {"color": colour, "width": 2},
        "marker": {"color": colour, "size": 6, "symbol": SYMBOLS[index % len(SYMBOLS)]},
        "cliponaxis": True,
    }


def _name(trace: dict[str, Any]) -> tuple[Any, str]:
    return trace["name"], trace["line"]["color"]


def _labels(names: list[tuple[Any, str]], ends: list[float], gap: float) -> list[dict[str, Any]]:
    """Write each line's name, in its colour, at its right end."""
    shared = {"xref": "paper", "x": 1, "xanchor": "left", "xshift": 8, "showarrow": False}
    return [
        shared | {"y": place, "text": text, "font": {"color": colour, "size": 12}}
        for (text, colour), place in zip(names, spread(ends, gap), strict=True)
    ]


def _dashed(y: float) -> dict[str, Any]:
    line = {"color": "var(--soft)", "width": 1, "dash": "dot"}
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": y, "y1": y, "line": line}


def _layout(x_title: dict[str, str], y_title: dict[str, str]) -> dict[str, Any]:
    axis = {"gridcolor": "var(--grid)", "zeroline": False, "linecolor": "var(--grid)", "fixedrange": True}
    hover = {"bgcolor": "var(--paper)", "bordercolor": "var(--grid)", "font": {"color": "var(--ink)"}}
    return {
        "xaxis": axis | {"title": {"text": x_title}},
        "yaxis": axis | {"title": {"text": y_title, "standoff": 12}, "automargin": True},
        "font": {"family": FONT, "size": 12, "color": "var(--soft)"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 0, "r": 112, "t": 12, "b": 48},
        "height": 440,
        "showlegend": False,
        "hoverlabel": hover,
    }


def _short(count: float) -> str:
    return f"{count / 1024:g}k" if count >= 1024 else f"{count:g}"


def _bytes(count: int) -> str:
    scale, unit = next(pair for pair in ((1_000_000, "MB"), (1000, "kB"), (1, "B")) if count >= pair[0])
    return f"{count // scale:,} {unit}"
