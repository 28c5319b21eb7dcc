"""Figures: plain functions from data to what plotly draws, `data` and `layout`, as plain data.

`plotly.graph_objects.Figure(**figure)` shows a figure in English and in the colours of a light page. A page replaces
both when it draws, because the reader may change them: a colour of `COLOURS` by that of the page's style, light or
dark, and a text by the one that `layout.meta` has for the page's language.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

Points: TypeAlias = Sequence[tuple[float, float]]
Figure: TypeAlias = dict[str, Any]
Attributes: TypeAlias = dict[str, Any]  # of a trace, an axis, an annotation: plotly's names and their values
Text: TypeAlias = tuple[str, str]  # English, Chinese

COLOURS = {  # by their names in templates/style.css
    "paper": "#fcfbf8",
    "ink": "#1f2328",
    "soft": "#5f6670",
    "grid": "#e6e3dc",
    "series-1": "#5f6b7a",
    "series-2": "#0072b2",
    "series-3": "#c24e00",
    "series-4": "#8a6d00",
    "series-5": "#008a64",
    "series-6": "#a32a6d",
    "series-7": "#2183b4",
    "series-8": "#4a3aa8",
    "series-9": "#c2556a",
}

SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "star", "triangle-down", "pentagon", "cross")
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'PingFang SC', 'Noto Sans CJK SC', sans-serif"
LABEL_GAP = 0.045  # between two labels, as a share of the figure's height


def loss_curves(curves: Mapping[str, Points], baseline: float, seconds: float) -> Figure:
    """Return a figure of held-out loss against training seconds; a curve that ends early keeps its last loss."""
    ends = [points[-1][1] for points in curves.values()]
    low, high = min(ends) - 0.1, max(baseline, *ends) + 0.25
    traces = [_trace(i, name, points) for i, (name, points) in enumerate(curves.items())]
    last = max(seconds, *(points[-1][0] for points in curves.values()))
    for trace in traces:
        trace["x"], trace["y"] = [*trace["x"], last], [*trace["y"], trace["y"][-1]]
        trace["hovertemplate"] = "%{y:.3f}, %{x:.1f} s"
    unigram = ("unigram", "一元模型")
    layout = _layout(("training seconds", "训练秒数"), ("nats per character", "每字符奈特数"), unigram)
    layout["xaxis"] |= {"range": [0, last], "ticksuffix": " s"}
    layout["yaxis"] |= {"range": [low, high]}
    line = {"color": COLOURS["soft"], "width": 1, "dash": "dot"}
    shape = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": baseline, "y1": baseline, "line": line}
    layout["shapes"] = [shape]
    names = [_name(trace) for trace in traces] + [(unigram[0], COLOURS["soft"])]
    layout["annotations"] = _labels(names, [*ends, baseline], LABEL_GAP * (high - low))
    return {"data": traces, "layout": layout}


def memory_growth(sizes: Mapping[str, Points]) -> Figure:
    """Return a figure of bytes of memory against symbols read, both axes logarithmic."""
    traces = [_trace(i, name, points) for i, (name, points) in enumerate(sizes.items())]
    for trace in traces:
        trace["hovertemplate"] = "%{y:,} B, %{x:,}"
    values = [math.log10(y) for points in sizes.values() for _, y in points]
    steps = sorted({x for points in sizes.values() for x, _ in points})
    low, high = min(values) - 0.3, max(values) + 0.3
    layout = _layout(("characters read", "已读字符数"), ("bytes remembered", "记忆字节数"))
    layout["xaxis"] |= {
        "tickvals": steps,
        "ticktext": [f"{n / 1024:g}k" if n >= 1024 else f"{n:g}" for n in steps],
        "type": "log",
        "range": [math.log10(steps[0]) - 0.05, math.log10(steps[-1])],
    }
    ticks = [10**n for n in range(math.ceil(low), math.floor(high) + 1)]
    layout["yaxis"] |= {"tickvals": ticks, "ticktext": [_bytes(n) for n in ticks], "type": "log", "range": [low, high]}
    ends = [math.log10(trace["y"][-1]) for trace in traces]
    layout["annotations"] = _labels([_name(trace) for trace in traces], ends, LABEL_GAP * (high - low))
    return {"data": traces, "layout": layout}


def attention_map(weights: Sequence[Sequence[float]], sources: Sequence[str], targets: Sequence[str]) -> Figure:
    """Return a heat map of attention weights: a row for each target symbol, a column for each source symbol."""
    scale = [[0, COLOURS["paper"]], [1, COLOURS["series-1"]]]
    trace = {"type": "heatmap", "z": [list(row) for row in weights], "zmin": 0, "zmax": 1, "colorscale": scale}
    trace |= {"showscale": False, "xgap": 1, "ygap": 1, "hovertemplate": "%{z:.3f}<extra></extra>"}
    layout = _layout(("source", "源"), ("target", "目标"))
    layout["xaxis"] |= {"tickvals": list(range(len(sources))), "ticktext": list(sources), "side": "top"}
    layout["yaxis"] |= {"tickvals": list(range(len(targets))), "ticktext": list(targets), "autorange": "reversed"}
    layout |= {"height": 120 + 26 * len(targets), "margin": {"l": 0, "r": 12, "t": 96, "b": 12}}
    return {"data": [trace], "layout": layout}


def spread(values: Sequence[float], gap: float) -> list[float]:
    """Return the values moved apart to at least `gap`; those that were too close keep their mean."""
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


def _trace(index: int, name: str, points: Points) -> Attributes:
    colour = COLOURS[f"series-{index % len(SYMBOLS) + 1}"]
    return {
        "name": name,
        "x": [x for x, _ in points],
        "y": [y for _, y in points],
        "mode": "lines+markers",
        "line": {"color": colour, "width": 2},
        "marker": {"color": colour, "size": 6, "symbol": SYMBOLS[index % len(SYMBOLS)]},
        "cliponaxis": True,
    }


def _name(trace: Attributes) -> tuple[str, str]:
    return trace["name"], trace["line"]["color"]


def _labels(names: list[tuple[str, str]], ends: list[float], gap: float) -> list[Attributes]:
    """Return the annotations: each line's name, in its colour, at its right end."""
    shared = {"xref": "paper", "x": 1, "xanchor": "left", "xshift": 8, "showarrow": False}
    return [
        shared | {"y": place, "text": text, "font": {"color": colour, "size": 12}}
        for (text, colour), place in zip(names, spread(ends, gap), strict=True)
    ]


def _layout(x_title: Text, y_title: Text, *others: Text) -> Attributes:
    """Return the layout that all figures share; `others` are further texts to be translated."""
    axis = {"gridcolor": COLOURS["grid"], "zeroline": False, "linecolor": COLOURS["grid"], "fixedrange": True}
    hover = {"bgcolor": COLOURS["paper"], "bordercolor": COLOURS["grid"], "font": {"color": COLOURS["ink"]}}
    return {
        "xaxis": axis | {"title": {"text": x_title[0]}},
        "yaxis": axis | {"title": {"text": y_title[0], "standoff": 12}, "automargin": True},
        "font": {"family": FONT, "size": 12, "color": COLOURS["soft"]},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 0, "r": 112, "t": 12, "b": 48},
        "height": 440,
        "showlegend": False,
        "hoverlabel": hover,
        "meta": {"zh": dict([x_title, y_title, *others])},
    }


def _bytes(count: int) -> str:
    scale, unit = next(pair for pair in ((1_000_000, "MB"), (1000, "kB"), (1, "B")) if count >= pair[0])
    return f"{count // scale:,} {unit}"
