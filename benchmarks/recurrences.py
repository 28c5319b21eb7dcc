"""RNN, GRU and LSTM beside torch.nn's on the CPU, in float32 and bfloat16, at many shapes.

The goals, by the time of torch.nn over ours, forward + backward at batch 32, 128 steps, width 256: LSTM 1, GRU 1.3, in
bfloat16 2; and 1 / 1.1 everywhere else. An LSTM in float32 runs torch's own kernel, ours and theirs alike, except in
training on large inputs. torch.nn's LSTM in bfloat16 ends in an illegal instruction on some processors;
`--without-bf16-lstm` leaves it out. Names after the options (`GRU bfloat16`) choose what is timed again; other rows are
kept. `--quick` runs fewer rounds, and keeps no result.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from common import earlier, interleave, save_result, summary
from layers import NARROW, PASSES, STEADY, THREADS, TOLERANCE, duel
from recollect import GRU, LSTM, RNN

SHAPES = [(32, 128, 256), (32, 128, 512), (1, 128, 256), (8, 128, 256), (64, 128, 256)]  # batch, steps, width
SHAPES += [(32, 8, 256), (32, 32, 256), (32, 512, 256), (1, 64, 1024), (20, 35, 650), (16, 16, 32)]
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
GOALS = {("LSTM", "float32"): 1.0, ("GRU", "float32"): 1.3, ("GRU", "bfloat16"): 2.0}  # at the first shape
LEAST = 0.9  # elsewhere
PRODUCTS = {PASSES[0]: 2, PASSES[1]: 6}  # of (B·T, D) with (D, G·H), or similar
COLUMNS = "{:6}{:10}{:>4}{:>5}{:>6}  {:20}{:>9}{:>9}{:>7}{:>8}{:>6}{:>9}{:>10}"


def main() -> int:
    names, is_quick = [a for a in sys.argv[1:] if not a.startswith("-")], "--quick" in sys.argv[1:]
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    print(
        COLUMNS.format(
            *("layer", "dtype", "B", "T", "H", "pass", "ours ms", "torch ms", "faster", "spread", "goal"),
            *("of peak", "differ"),
        )
    )
    peaks = {dtype: peak(dtype) for dtype in DTYPES}
    rows = [row for kind in (RNN, GRU, LSTM) for dtype in DTYPES for row in one(kind, dtype, names, peaks, is_quick)]
    missed = [row for row in rows if row["faster"] < row["goal"]]
    print(f"{len(missed)} of {len(rows)} rows miss their goal; a matmul of 2048³: {peaks} GFLOP/s")
    if not is_quick:
        kept = [row for row in earlier("recurrences") if not is_asked(row["layer"], row["dtype"], names)]
        setting = {"threads": THREADS, "steady": STEADY, "products": PRODUCTS}
        save_result("recurrences", kept + rows, setting=setting, tolerance={"float32": TOLERANCE, "bfloat16": NARROW})
    return 0


def is_asked(layer: str, dtype: str, names: list[str]) -> bool:
    """Return whether the names select it: no kind is named, or this one; no dtype is named, or this one."""
    kinds, dtypes = [n for n in names if n not in DTYPES], [n for n in names if n in DTYPES]
    return (not kinds or layer in kinds) and (not dtypes or dtype in dtypes)


def one(kind: Any, dtype: str, names: list[str], peaks: dict[str, float], is_quick: bool) -> list[dict[str, Any]]:
    """Time one kind of layer in one dtype at all shapes."""
    is_barred = kind is LSTM and dtype == "bfloat16" and "--without-bf16-lstm" in sys.argv[1:]
    if is_barred or not is_asked(kind.__name__, dtype, names):
        return []
    rows = []
    for shape in SHAPES:
        for row in at_shape(kind, dtype, shape, 3 if is_quick else 12):
            row |= {"peak_gflops": peaks[dtype], "of_peak": round(row["gflops"] / peaks[dtype], 2)}
            report(row)
            rows.append(row)
    return rows


def at_shape(kind: Any, dtype: str, shape: tuple[int, int, int], rounds: int) -> list[dict[str, Any]]:
    batch, steps, width = shape
    ours = kind(width, width).to(DTYPES[dtype])
    theirs = ours.to_torch()
    x = torch.randn(shape, dtype=DTYPES[dtype])
    rounds *= max(1, 2**24 // x[:, :, 0].numel() // width**2)  # the small ones take no time
    rows = duel(kind.__name__, (ours, lambda x: ours(x)[0]), (theirs, lambda x: theirs(x)[0]), x, min(rounds, 100))
    for row in rows:
        goal = GOALS.get((kind.__name__, dtype), LEAST) if shape == SHAPES[0] and row["pass"] == PASSES[1] else LEAST
        work = 2 * PRODUCTS[row["pass"]] * batch * steps * width * ours.weight_hh.shape[0]
        row |= {"dtype": dtype, "batch": batch, "steps": steps, "goal": goal, "against": f"nn.{kind.__name__}"}
        row |= {"faster": round(row["torch_ms"] / row["ours_ms"], 2), "gflops": round(work / row["ours_ms"] / 1e6, 1)}
    return rows


def peak(dtype: str) -> float:
    """Return the speed of torch's matmul of two large matrices, in GFLOP/s."""
    a, b = (torch.randn(2048, 2048).to(DTYPES[dtype]) for _ in range(2))
    seconds, _ = summary(interleave({"product": lambda: a @ b}, 10)["product"])
    return round(2 * 2048**3 / seconds / 1e9, 1)


def report(row: dict[str, Any]) -> None:
    values = [row["layer"], row["dtype"], row["batch"], row["steps"], row["hidden"], row["pass"]]
    values += [f"{row['ours_ms']:.2f}", f"{row['torch_ms']:.2f}", f"{row['faster']:.2f}", f"{row['spread']:.0%}"]
    values += [row["goal"], f"{row['of_peak']:.0%}", f"{row['largest_difference']:.0e}"]
    print(COLUMNS.format(*values), flush=True)


if __name__ == "__main__":
    sys.exit(main())
