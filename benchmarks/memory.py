"""The bytes of every family's memory after 1, 16, 256 and 4096 steps, summed over the tensors after reading.

Writes benchmarks/results/memory.json and draws docs/memory.svg.
"""

from __future__ import annotations

import sys
import warnings
from itertools import groupby
from typing import Any

import matplotlib
import torch
from matplotlib import pyplot
from matplotlib.axes import Axes
from torch import Tensor

from common import ROOT, save_result
from recollect import (
    GRU,
    LSTM,
    RNN,
    TTTMLP,
    BasicSelfAttention,
    CrossAttention,
    FeedForward,
    LinearAttention,
    Markov,
    Memory,
    Positions,
    SelfAttention,
    SequenceLayer,
    TTTLinear,
    Window,
)

STEPS = (1, 16, 256, 4096)
WIDTH, HEADS, ORDER, VOCAB, NEAREST, SOURCE, PIECE = 64, 4, 4, 256, 256, 32, 128

# Okabe and Ito's colours, distinguishable with colour blindness; dashes differ as well.
LOOK = {"constant": ("#0072B2", "-"), "linear": ("#D55E00", "-"), "saturates": ("#AA4499", (0, (4, 4)))}
MEANING = {
    "constant": "constant  始终不变",
    "linear": "linear: grows with every step  每一步都增长",
    "saturates": "saturates: grows until the window is full  窗口满后不再增长",
}


def main() -> int:
    torch.manual_seed(0)
    rows = [measure(family, layer) for family, layer in families().items()]
    for row in rows:
        print(f"{row['family']:28}{row['memory']:14}{row['growth']:11}", *(f"{n:>10,}" for n in row["bytes"]))
    setting = {"batch": 1, "dtype": "float32", "width": WIDTH, "heads": HEADS}
    save_result("memory", rows, steps=STEPS, setting=setting)
    draw([row for row in rows if row["growth"] != "none"], str(ROOT / "docs" / "memory.svg"))
    return 0


def families() -> dict[str, SequenceLayer[Any]]:
    """Return one layer of every family, in historical order."""
    return {
        f"Markov, order {ORDER}": Markov(VOCAB, ORDER),
        f"Window, order {ORDER}": Window(WIDTH, ORDER),
        "RNN": RNN(WIDTH, WIDTH),
        "LSTM": LSTM(WIDTH, WIDTH),
        "GRU": GRU(WIDTH, WIDTH),
        f"CrossAttention, {SOURCE} steps": CrossAttention(WIDTH, HEADS),
        "BasicSelfAttention": BasicSelfAttention(WIDTH),
        "SelfAttention": SelfAttention(WIDTH, HEADS),
        f"SelfAttention, window {NEAREST}": SelfAttention(WIDTH, HEADS, window=NEAREST),
        "Positions": Positions(WIDTH),
        "FeedForward": FeedForward(WIDTH),
        "LinearAttention": LinearAttention(WIDTH, HEADS),
        "TTTLinear": TTTLinear(WIDTH, HEADS),
        "TTTMLP": TTTMLP(WIDTH, HEADS),
    }


@torch.no_grad()
def measure(family: str, layer: SequenceLayer[Any]) -> dict[str, Any]:
    """Read 4096 steps in chunks, and count the bytes after each."""
    memory, sizes, read = begin(layer.eval()), [], 0
    for steps in STEPS:
        while read < steps:
            piece = min(PIECE, steps - read)
            memory = layer(draw_inputs(layer, piece), memory)[1]
            read += piece
        sizes.append(memory.nbytes)
    assert follows(layer.growth, sizes), f"{family}: bytes {sizes} do not follow the stated growth {layer.growth!r}"
    return {"family": family, "memory": type(memory).__name__, "growth": layer.growth, "bytes": sizes}


def begin(layer: SequenceLayer[Any]) -> Memory:
    if isinstance(layer, CrossAttention):
        return layer.remember(torch.randn(1, SOURCE, WIDTH))
    return layer.initial_memory(1)


def draw_inputs(layer: SequenceLayer[Any], steps: int) -> Tensor:
    return torch.randint(VOCAB, (1, steps)) if layer.width is None else torch.randn(1, steps, layer.width)


def follows(growth: str, sizes: list[int]) -> bool:
    """Whether the bytes after STEPS grow as stated; a list may have a fixed part, its length, beside it."""
    per_step = {(b - sizes[0]) / (t - STEPS[0]) for b, t in zip(sizes[1:], STEPS[1:], strict=True)}
    full = STEPS.index(NEAREST)
    return {
        "none": set(sizes) == {0},
        "constant": len(set(sizes)) == 1 and sizes[0] > 0,
        "saturates": sizes[:full] == sorted(set(sizes[:full])) and sizes[full - 1] < sizes[full] == sizes[-1],
        "linear": len(per_step) == 1 and per_step.pop() > 0,
    }[growth]


# ---- the figure ------------------------------------------------------------------------------------


def draw(rows: list[dict[str, Any]], path: str) -> None:
    """Draw bytes over steps, each line named at its end. The same rows give the same file."""
    settings = {"svg.fonttype": "none", "svg.hashsalt": "recollect", "font.size": 10}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        # Text stays text and the fonts are the reader's: characters that this machine cannot draw do not matter.
        warnings.filterwarnings("ignore", "Glyph")
        figure, axes = pyplot.subplots(figsize=(8.6, 5.8), facecolor="white")
        figure.subplots_adjust(left=0.085, right=0.71, top=0.86, bottom=0.1)
        for row in sorted(rows, key=lambda row: list(LOOK).index(row["growth"])):
            color, dashes = LOOK[row["growth"]]
            axes.plot(STEPS, row["bytes"], color=color, linestyle=dashes, linewidth=1.8, marker="o", markersize=4)
        name_lines(axes, rows)
        name_growths(axes)
        dress(axes)
        figure.savefig(path, metadata={"Date": None, "Creator": None})
        pyplot.close(figure)


def name_lines(axes: Axes, rows: list[dict[str, Any]]) -> None:
    """Write the families at the right end, those with the same bytes in one label."""
    in_order = sorted(rows, key=lambda row: row["bytes"][-1])
    for size, same in groupby(in_order, key=lambda row: row["bytes"][-1]):
        group = list(same)
        name = ", ".join(row["family"] for row in group)
        place = {"xytext": (8, 0), "textcoords": "offset points", "va": "center"}
        axes.annotate(f"{name}: {human(size)}", (STEPS[-1], size), color=LOOK[group[0]["growth"]][0], **place)


def name_growths(axes: Axes) -> None:
    for growth, (color, dashes) in LOOK.items():
        axes.plot([], [], color=color, linestyle=dashes, linewidth=1.8, label=MEANING[growth])
    axes.legend(loc="upper left", labelcolor="linecolor", fontsize=9.5, frameon=False, borderaxespad=0)


def dress(axes: Axes) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks(STEPS, [f"{t:,}" for t in STEPS])
    ticks = [2**n for n in range(3, 22, 3)]
    axes.set_yticks(ticks, [human(n) for n in ticks])
    axes.minorticks_off()
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel(f"steps read by one sequence (float32, width {WIDTH}, {HEADS} heads)")
    axes.set_ylim(2**2.3, 2**24.6)  # leaves space for the legend
    axes.set_title(
        "What a layer remembers, in bytes\n一层记住多少：字节数随步数的变化", loc="left", fontsize=12, pad=12
    )


def human(size: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024 or unit == "MiB":
            break
        size /= 1024
    return f"{size:.3g} {unit}"


if __name__ == "__main__":
    matplotlib.use("Agg")
    sys.exit(main())
