"""From logits to an id on a GPU in one launch: see choose.cu."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch
from torch import Tensor

from recollect.accel.cuda.launcher import Kernel, address, launcher_for

THREADS = 1024


@dataclass(frozen=True, eq=False)
class TurnRecord:
    """What an iteration of the decode loop writes beside the memory."""

    at: Tensor  # (1,) the iteration's number
    active: Tensor  # (B,) bool: rows that have not ended
    live: Tensor  # (B,) bool: rows that emitted an id in this iteration
    ids: Tensor  # (B,) chosen
    said: Tensor  # (turns, B) ids, −1 where none was emitted
    log_p: Tensor  # (turns, B) float64


@dataclass(frozen=True)
class ChoiceRule:
    """How to choose: the likeliest, or a draw among the `top_k` likeliest of logits / temperature."""

    greedy: bool
    top_k: int | None = None
    temperature: float = 1.0

    def kernel(self, rows: int) -> Kernel:
        """Return the kernel, a thread block per row."""
        top_k, temperature = (0, 1.0) if self.greedy else (self.top_k or 0, float(self.temperature))
        constants = ("GREEDY", int(self.greedy)), ("TOP_K", top_k), ("TEMPERATURE", f"{temperature!r}f")
        return Kernel("choose", (*constants, ("THREADS", THREADS)), rows, THREADS, 8 * THREADS + 4 * (256 + 4))


class _ChoiceArguments(ctypes.Structure):
    """`Arguments` of choose.cu, field by field."""

    names = "logits", "filtered", "uniform", "at", "stop", "active", "live", "ids", "said", "log_p"
    _fields_ = (*((n, ctypes.c_void_p) for n in names), ("vocabulary", ctypes.c_int), ("stops", ctypes.c_int))


def choose(rule: ChoiceRule, logits: Tensor, filtered: Tensor, uniform: Tensor, stop: Tensor, into: TurnRecord) -> bool:
    """Choose from `filtered` (B, V) by the random numbers `uniform` (turns, B), and record it; False: no kernel.

    `logits` (B, V) are the model's own, for log p.
    """
    launcher = launcher_for(logits)
    if launcher is None or logits.dtype != torch.float32 or not (logits.is_contiguous() and filtered.is_contiguous()):
        return False
    read = logits, filtered, uniform, into.at, stop
    written = into.active, into.live, into.ids, into.said, into.log_p
    arguments = _ChoiceArguments(*(address(t) for t in (*read, *written)), logits.shape[1], len(stop))
    launcher.launch(rule.kernel(len(logits)), logits.device, arguments)
    return True
