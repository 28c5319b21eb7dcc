"""Truncated back-propagation through time: where the graph of a carried memory is cut.

    ∂ℓ/∂w = Σ_t ∂ℓ_t/∂w,  each through all memories before t: "full" goes back to the row's beginning

"regular" cuts every `steps` symbols, "random" after segments of random length with that mean: both drop the gradient
from before the cut, and are biased. "reweighted" (Tallec & Ollivier 2017, "Unbiasing truncated backpropagation through
time") cuts at random too, with probability c at each possible cut, and multiplies the gradient that passes the others
by 1 / (1 − c): its expectation is the full gradient.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

import numpy as np
import torch
from torch import Tensor

from recollect.core.layer import SequenceLayer
from recollect.core.memory import Memory

M = TypeVar("M", bound=Memory)
Kind = Literal["regular", "full", "random", "reweighted"]


@dataclass(frozen=True)
class Truncation:
    """Where the graph is cut: the length of the segments, and how one is read."""

    kind: Kind = "regular"
    steps: int = 128  # symbols in a segment; the mean where lengths are random
    every: int = 16  # where lengths are random: symbols between possible cuts

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(f"truncation: got {self.kind!r}, expected one of {', '.join(get_args(Kind))}")
        if self.steps < 1 or self.every < 1:
            raise ValueError(f"truncation: got steps {self.steps}, every {self.every}, expected at least 1")
        if self.is_random and self.steps <= self.every:
            expected = f"more than {self.every}, the symbols between possible cuts"
            raise ValueError(f"truncation: got steps {self.steps}, expected {expected}")

    @property
    def is_random(self) -> bool:
        """Whether lengths are random."""
        return self.kind in ("random", "reweighted")

    @property
    def is_in_one_call(self) -> bool:
        """Whether a segment is read by one call of the model."""
        return self.kind != "reweighted"

    @property
    def cut_probability(self) -> float:
        """The probability c of each possible cut."""
        return self.every / self.steps

    def length(self, draw: np.random.Generator) -> int:
        """Return the length of the next segment; "full": longer than any row."""
        if self.kind == "full":
            return sys.maxsize
        return int(draw.geometric(self.cut_probability)) * self.every if self.is_random else self.steps

    def read(
        self, model: SequenceLayer[M], x: Tensor, memory: M | None = None, valid: Tensor | None = None
    ) -> tuple[Tensor, M]:
        """Read one segment; "reweighted": in chunks, with the gradient between them multiplied by 1 / (1 − c)."""
        if self.is_in_one_call:
            return model(x, memory, valid=valid)
        chunks = x.split(self.every, dim=1)
        masks = [None] * len(chunks) if valid is None else valid.split(self.every, dim=1)
        y, memory = model(chunks[0], memory, valid=masks[0])
        outputs = [y]
        for chunk, mask in zip(chunks[1:], masks[1:], strict=True):
            y, memory = model(chunk, scale_gradient(memory, 1 / (1 - self.cut_probability)), valid=mask)
            outputs.append(y)
        return torch.cat(outputs, dim=1), memory


def scale_gradient(memory: M, factor: float) -> M:
    """Return the same memory; the gradient that flows back through it is multiplied by `factor`."""

    def scale(t: Tensor) -> Tensor:
        return _Scaled.apply(t, factor) if t.is_floating_point() else t  # type: ignore[no-untyped-call]

    return memory._map(scale, lambda m: scale_gradient(m, factor))


class _Scaled(torch.autograd.Function):
    """The identity, with a scaled gradient: a hook would scale the gradient of the outputs as well."""

    @staticmethod
    def forward(ctx: Any, t: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return t.view_as(t)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0] * ctx.factor, None
