"""The figure of growth: a panel for every axis, a line for every family, and dotted lines of known slope."""

from __future__ import annotations

import warnings
from typing import Any

import matplotlib
from matplotlib import pyplot
from matplotlib.axes import Axes

# Okabe and Ito's colours without the yellow, which is hard to see on white; markers differ as well.
LOOK = {
    "window": ("#999999", "v"),
    "rnn": ("#000000", "o"),
    "gru": ("#56B4E9", "s"),
    "lstm": ("#0072B2", "D"),
    "linear-attention": ("#009E73", "^"),
    "transformer": ("#D55E00", "P"),
    "ttt-linear": ("#CC79A7", "X"),
    "ttt-mlp": ("#8B5A00", "*"),
}
TITLES = {
    "T": "T: steps  步数",
    "H": "H: width  宽度",
    "B": "B: batch  批量",
    "layers": "layers  层数",
    "context": "context: one token  上下文：一个词元",
}
SLOPES = {"T": (1, 2), "H": (1, 2), "B": (1,), "layers": (1,), "context": (1,)}
SHOWN = ("forward + backward", "generation")


def draw(rows: list[dict[str, Any]], base: dict[str, int], path: str) -> None:
    """Draw milliseconds over sizes. The same rows give the same file."""
    settings = {"svg.fonttype": "none", "svg.hashsalt": "recollect", "font.size": 9}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        # Text stays text and the fonts are the reader's: characters that this machine cannot draw do not matter.
        warnings.filterwarnings("ignore", "Glyph")
        figure, panels = pyplot.subplots(2, 3, figsize=(9.6, 6.2), facecolor="white")
        *places, corner = panels.flat
        for axes, axis in zip(places, TITLES, strict=True):
            draw_axis(axes, axis, [row for row in rows if row["axis"] == axis and row["pass"] in SHOWN])
        name_families(corner, base)
        figure.tight_layout(pad=0.8)
        figure.savefig(path, metadata={"Date": None, "Creator": None})
        pyplot.close(figure)


def draw_axis(axes: Axes, axis: str, rows: list[dict[str, Any]]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for row in rows:
        color, mark = LOOK[row["family"]]
        axes.plot(row["sizes"], row["ms"], color=color, marker=mark, markersize=4, linewidth=1.4)
    if rows:
        sizes = max((row["sizes"] for row in rows), key=len)
        draw_slopes(axes, axis, sizes, min(row["ms"][0] for row in rows), axes.get_ylim())
        ticks = sizes if len(sizes) < 7 else sizes[::2]
        axes.set_xticks(ticks, [f"{n:,}" for n in ticks])
    axes.minorticks_off()
    axes.grid(axis="y", color="#E4E4E4", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(TITLES[axis], loc="left", fontsize=10)
    axes.set_ylabel("ms")


def draw_slopes(axes: Axes, axis: str, sizes: list[int], least: float, limits: tuple[float, float]) -> None:
    """Draw lines that double, or quadruple, with every doubling of the size, from below the lowest family."""
    for slope in SLOPES[axis]:
        values = [0.7 * least * (n / sizes[0]) ** slope for n in sizes]
        axes.plot(sizes, values, color="#AAAAAA", linestyle=":", linewidth=1.0, zorder=0)
        last = max(i for i, v in enumerate(values) if v <= limits[1])
        name = f"∝ {axis[0] if axis in 'THB' else 'n'}{'²' if slope == 2 else ''}"
        look = {"color": "#666666", "fontsize": 8, "ha": "right", "va": "bottom"}
        around = {"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.85}
        axes.annotate(name, (sizes[last], values[last]), **look, bbox=around)
    axes.set_ylim(0.6 * least, limits[1])


def name_families(axes: Axes, base: dict[str, int]) -> None:
    axes.axis("off")
    for family, (color, mark) in LOOK.items():
        axes.plot([], [], color=color, marker=mark, markersize=5, linewidth=1.4, label=family)
    held = ", ".join(f"{name} {value}" for name, value in base.items())
    title = f"forward + backward  前向 + 反向\nbase  基准: {held}"
    axes.legend(loc="center left", frameon=False, fontsize=9.5, title=title, title_fontsize=8.5, alignment="left")
