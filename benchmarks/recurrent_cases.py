"""The cases of recurrent.py, how long each is measured, and how its rows are merged and written."""

from __future__ import annotations

import statistics
from itertools import product
from typing import Any, NamedTuple

HIDDEN, BATCH = (64, 128, 200, 256, 512, 650, 1024, 1500), (1, 16, 64, 128)  # the grid
KINDS = ("lstm", "gru", "rnn_tanh")
COLUMNS = "{:9}{:10}{:>4}{:>6}{:>4} {:18}{:>8}{:>8}{:>8}{:>8}{:>8}{:>7}{:>7}{:>8}{:>8}{:>7}  {}"
HEAD = ("cell", "dtype", "B", "H", "", "pass", "ours", "graph", "torch", "graph", "walk")
HEAD += ("x", "x row", "x graph", "spread", "rounds", "errors: ours, torch | plan")
CONTENDERS = ("ours", "ours in a graph", "torch.nn", "torch.nn in a graph", "walk")
PASSES = ("forward", "forward + backward")
WAYS = {"ratio": "", "ratio_in_a_row": " in a row", "ratio_in_graphs": " in a graph"}  # of calling


class Case(NamedTuple):
    """A recurrent layer, or a stack of them; inputs are as wide as its states."""

    cell: str
    dtype: str
    batch: int
    hidden: int
    layers: int = 1
    directions: int = 1

    @property
    def is_stack(self) -> bool:
        """Whether there is more than one persistent kernel."""
        return self.layers * self.directions > 1


class Effort(NamedTuple):
    """How long a case is measured: at least so many rounds, and at least so many seconds for each pass."""

    steps: int
    rounds: int
    seconds: float
    warmup: int


GOALS = [Case("lstm", dtype, 64, hidden) for dtype in ("bfloat16", "float32") for hidden in (1024, 512, 256)]
GOALS += [Case("gru", "bfloat16", 64, 1024), Case("lstm", "float16", 16, 1024), Case("rnn_tanh", "float16", 64, 256)]
GOALS += [Case("lstm", "bfloat16", 64, 512, layers=4), Case("lstm", "bfloat16", 64, 512, directions=2)]
GRID = [Case(cell, "bfloat16", batch, hidden) for cell, batch, hidden in product(KINDS, BATCH, HIDDEN)]
GRID += [Case("lstm", "float32", batch, hidden) for batch, hidden in product(BATCH, HIDDEN)]  # tf32
ALL = [*GOALS, *(case for case in GRID if case not in GOALS)]
FOR_GOALS, FOR_GRID = Effort(1024, 30, 0.0, warmup=3), Effort(256, 5, 0.1, warmup=1)


def parse(text: str) -> Case:
    """Read cell,dtype,batch,hidden and, for a stack, layers,directions."""
    cell, dtype, *sizes = text.split(",")
    return Case(cell, dtype, *map(int, sizes))


def effort_for(case: Case, rounds: int | None = None) -> Effort:
    effort = FOR_GOALS if case in GOALS else FOR_GRID
    return effort if rounds is None else effort._replace(rounds=rounds, seconds=0.0)


def summarise(times: dict[str, list[float]], steps: int) -> dict[str, Any]:
    """Return median µs per step, our widest spread, and how many times faster than torch.nn called the same way."""
    each = {name: statistics.median(t) * 1000 / steps for name, t in times.items()}
    ours = times["ours"]
    low, middle, high = statistics.quantiles(ours, n=4) if len(ours) > 1 else ours * 3
    ratios = {name: each[f"torch.nn{way}"] / each[f"ours{way}"] for name, way in WAYS.items() if f"ours{way}" in each}
    return ratios | {
        "rounds": len(ours),
        "us_per_step": each,
        "spread": (high - low) / middle,
        "slower": ratios["ratio"] < 1,
        "slower_in_graphs": ratios["ratio_in_graphs"] < 1,
    }


def case_of(row: dict[str, Any]) -> Case:
    return Case(*(row[name] for name in Case._fields))


def merge(before: list[dict[str, Any]], found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Replace earlier rows; return all in the order of the cases."""
    rows = {(case_of(row), row["pass"]): row for row in [*before, *found]}
    places = [(case, which) for case in ALL for which in PASSES]
    return [rows[place] for place in places if place in rows]


def line(row: dict[str, Any]) -> str:
    us = [f"{row['us_per_step'][name]:.2f}" if name in row["us_per_step"] else "" for name in CONTENDERS]
    errors = " ".join(f"{name} {a:.4f} {b:.4f}" for name, (a, b) in row["errors"].items())
    ratios = [f"{row[name]:.2f}" if name in row else "" for name in WAYS] + [f"{row['spread']:.0%}", row["rounds"]]
    shape = f"x{row['layers']}" if row["layers"] > 1 else "<>" if row["directions"] > 1 else ""
    head = (row["cell"], row["dtype"], row["batch"], row["hidden"], shape, row["pass"])
    marks = "".join(f" | {mark}" for mark in ("slower", "slower_in_graphs") if row[mark]).replace("_", " ")
    return COLUMNS.format(*head, *us, *ratios, f"{errors} | {row['plan']}{marks}")
