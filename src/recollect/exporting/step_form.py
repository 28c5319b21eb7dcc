"""The step form of a model, with tensors only: (token, *memory) to (logits, *memory).

Graph formats hold no dataclasses, and torch.export fails on recurrences over a time of any length. One step has
neither difficulty, and since the memory goes in and comes out by name, it is all that a generator needs.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from recollect.core.growing import Growing
from recollect.core.memory import Memory
from recollect.core.reservation import with_leaves


class StepForm(nn.Module):
    """One step of a model: ids (B,) and the tensors of a memory to logits (B, V) and the tensors of the next memory."""

    def __init__(self, model: Any, memory: Memory) -> None:
        super().__init__()
        self.model = model
        self.memory = memory  # its layout; the tensors are given

    def forward(self, token: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the logits of the next symbol and the memory after."""
        memory = with_leaves(self.memory, iter(tensors))
        logits, after = self.model(token[:, None], memory)  # (B, 1, V)
        return (logits[:, 0], *after.leaves())


def growing_axes(memory: Memory) -> list[int | None]:
    """Return for each tensor of a memory the axis that lengthens with every step, or None."""
    grown = {id(t) for part in memory.within() if isinstance(part, Growing) for _, t in part._lists()}
    return [1 if id(t) in grown else None for t in memory.leaves()]
