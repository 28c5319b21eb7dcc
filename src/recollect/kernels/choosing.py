"""From logits to an id on a GPU in one launch: see cuda/choose.cu."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch
from torch import Tensor

from recollect.kernels.launchers import Constants, address, launcher_for

THREADS = 1024


@dataclass(frozen=True, eq=False)
class Said:
    """Where a choice is told: all that a turn of a loop writes down beside what it remembers."""

    at: Tensor  # (1,) the turn's number
    active: Tensor  # (B,) bool: rows that may say something
    live: Tensor  # (B,) bool: rows that said something this turn
    ids: Tensor  # (B,) chosen
    said: Tensor  # (turns, B) ids, −1 where none was said
    log_p: Tensor  # (turns, B) float64


@dataclass(frozen=True)
class Way:
    """How to choose: the likeliest, or a draw among the `top_k` likeliest of logits / temperature."""

    greedy: bool
    top_k: int | None = None
    temperature: float = 1.0

    def constants(self) -> Constants:
        """Give the constants of cuda/choose.cu."""
        drawn = {"TOP_K": self.top_k or 0, "TEMPERATURE": f"{float(self.temperature)!r}f"}
        same = {"SCALAR": 0, "GREEDY": int(self.greedy), "THREADS": THREADS}
        return same | ({"TOP_K": 0, "TEMPERATURE": "1.0f"} if self.greedy else drawn)


def choose(way: Way, logits: Tensor, filtered: Tensor, uniform: Tensor, stop: Tensor, into: Said) -> bool:
    """Choose from `filtered` (B, V) by the numbers `uniform` (turns, B), and write it down; False: no kernel.

    `logits` (B, V) are the model's own, for log p.
    """
    launcher = launcher_for(logits)
    if launcher is None or logits.dtype != torch.float32 or not (logits.is_contiguous() and filtered.is_contiguous()):
        return False
    vocabulary, stops = ctypes.c_int(logits.shape[1]), ctypes.c_int(len(stop))
    read = [address(logits), address(filtered), vocabulary, address(uniform), address(into.at), address(stop), stops]
    written = [address(t) for t in (into.active, into.live, into.ids, into.said, into.log_p)]
    launcher.launch("choose", way.constants(), len(logits), THREADS, [*read, *written], False)
    return True
