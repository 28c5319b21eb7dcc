"""The loss of a map to many symbols by chunks, beside cross-entropy of whole logits: time and memory on a CPU.

    python benchmarks/head_loss.py

Both compute the loss of the same features and every gradient, interleaved, on one thread; processor time, medians. The
peak is what a process of its own needs beyond the inputs. Results go to benchmarks/results/head-loss.json.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common import save_result
from recollect.core.machine import peak_memory
from recollect.training.head_loss import head_loss

CPU = torch.device("cpu")
SHAPES = [(2048, 176, 9927), (2048, 256, 32_000), (1536, 114, 4096), (2048, 120, 1181)]  # rows, width, symbols


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--peak", nargs=4, metavar=("KIND", "ROWS", "WIDTH", "SYMBOLS"))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.peak:
        kind, *shape = asked.peak
        print(peak_of(kind, tuple(int(size) for size in shape)))
        return
    save_result("head-loss", [row_of(shape, asked.rounds) for shape in SHAPES], threads=1)


def row_of(shape: tuple[int, int, int], rounds: int) -> dict[str, Any]:
    """Return a row of the table."""
    kinds = make(shape)
    times: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(rounds):
        for name, update in kinds.items():
            begun = time.process_time()
            update()
            times[name].append(time.process_time() - begun)
    whole, chunks = (statistics.median(times[name][1:]) for name in ("whole", "chunks"))
    peaks = {name: peak_apart(name, shape) for name in kinds}
    row = {"rows": shape[0], "width": shape[1], "symbols": shape[2], "whole_ms": whole * 1e3, "chunks_ms": chunks * 1e3}
    row |= {"ratio": whole / chunks, "whole_mib": peaks["whole"], "chunks_mib": peaks["chunks"]}
    print(row)
    return row


def make(shape: tuple[int, int, int]) -> dict[str, Callable[[], None]]:
    """Return one update for each kind, on the same inputs."""
    rows, width, symbols = shape
    torch.manual_seed(0)
    head = nn.Linear(width, symbols)
    x = torch.randn(rows, width, requires_grad=True)
    y = torch.randint(symbols, (rows,))

    def learn(loss: Callable[[], Tensor]) -> None:
        x.grad = head.weight.grad = head.bias.grad = None
        loss().backward()

    return {
        "whole": lambda: learn(lambda: F.cross_entropy(head(x), y, reduction="sum")),
        "chunks": lambda: learn(lambda: head_loss(head, x, y, ignored=-100)),
    }


def peak_of(kind: str, shape: tuple[int, ...]) -> float:
    """Return by how many MiB one update raises this process's peak of memory."""
    update = make(shape)[kind]  # type: ignore[arg-type]
    before = peak_memory(CPU)
    update()
    return (peak_memory(CPU) - before) / 2**20


def peak_apart(kind: str, shape: tuple[int, ...]) -> float:
    """Return the peak in a process of its own."""
    words = [sys.executable, __file__, "--peak", kind, *map(str, shape)]
    return float(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    main()
