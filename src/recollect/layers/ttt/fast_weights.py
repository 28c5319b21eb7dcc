"""What test-time training remembers, and what it learns from: plain data and the operations on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from recollect.core.memory import Memory, hint


@dataclass(frozen=True, eq=False, kw_only=True)
class FastWeights(Memory):
    """The inner model's weights at the last mini-batch border, and the inner gradient accumulated since.

    The unfinished mini-batch needs nothing else: its gradients are all taken at the border's weights.

    >>> _, memory = rc.TTTLinear(8, 2, mini_batch=4)(torch.randn(1, 10, 8))
    >>> tuple(memory.weights[0].shape), memory.length.tolist()  # a 4 × 4 matrix for each head
    ((1, 2, 4, 4), [10])
    """

    weights: tuple[Tensor, ...]  # each (B, N, in, out)
    gathered: tuple[Tensor, ...]  # the same shapes: Σ η_s ∇ℓ(W; x_s)
    length: Tensor  # (B,)
    at_border: bool = hint()  # every row is at a mini-batch border: known without reading `length`


class Views(NamedTuple):
    """Inputs k, targets v and queries q of the inner model, per head (B, N, T, H), and the rate (B, N, T, 1)."""

    k: Tensor
    v: Tensor
    q: Tensor
    rate: Tensor

    def steps(self, part: slice) -> Views:
        """Return a slice of the steps."""
        return Views(*(t[:, :, part] for t in self))

    def split(self, size: int) -> Iterator[Views]:
        """Return all steps in chunks of `size`: cheaper to differentiate than slicing."""
        return (Views(*parts) for parts in zip(*(t.split(size, dim=2) for t in self), strict=True))


class Lesson(NamedTuple):
    """The gradient of the inner loss in factors: ∇_{W_i} ℓ = Σ_s inputs_iᵀ errors_i, times the rate."""

    inputs: tuple[Tensor, ...]  # each (B, N, T, in)
    errors: tuple[Tensor, ...]  # each (B, N, T, out), times η_s

    def gradients(self) -> tuple[Tensor, ...]:
        """Return the gradients, summed over the steps."""
        return tuple(a.transpose(-1, -2) @ g for a, g in zip(self.inputs, self.errors, strict=True))


def add(a: tuple[Tensor, ...], b: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return the sums, tensor by tensor."""
    return tuple(x + y for x, y in zip(a, b, strict=True))


def choose(rows: Tensor, new: tuple[Tensor, ...] | None, old: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return the new weights (None: zeros) in some rows, the old ones in the others."""
    where = rows[:, None, None, None]
    if new is None:
        return tuple(o.masked_fill(where, 0) for o in old)
    return tuple(torch.where(where, n, o) for n, o in zip(new, old, strict=True))


def shifted(views: Views, place: Tensor, slots: int, count: Tensor) -> Views:
    """Shift each row's steps to begin at slot `place`; the slots around them are blank, with a rate of zero."""
    step = torch.arange(slots, device=place.device) - place[:, None]  # (B, slots)
    is_blank = (step < 0) | (step >= count[:, None])
    index = step.clamp(0, views.q.shape[2] - 1)[:, None, :, None]
    moved = [t.gather(2, index.expand(-1, t.shape[1], -1, t.shape[3])) for t in views]
    moved[3] = moved[3].masked_fill(is_blank[:, None, :, None], 0)
    return Views(*moved)
