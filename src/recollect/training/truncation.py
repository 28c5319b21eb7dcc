"""How far back-propagation goes back: where the graph of a carried memory is cut, and what makes up for it.

    ∂ℓ/∂w = Σ_t ∂ℓ_t/∂w,  each through all memories before t: "full" goes back to the row's beginning

"regular" cuts every `steps` symbols, "random" after stretches of random length with that mean: both forget what lies
before the cut, so that their gradients are biased. "reweighted" (Tallec & Ollivier 2017, "Unbiasing truncated
backpropagation through time") cuts at random too, with probability c at each possible cut, and multiplies what flows
back through the others by 1 / (1 − c): the expected gradient is the full one.
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
    """Where the graph is cut: the length of the stretches, and how one is read."""

    kind: Kind = "regular"
    steps: int = 128  # symbols to a stretch; their mean where lengths are random
    every: int = 16  # where lengths are random: possible cuts lie so many symbols apart

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(f"truncation: got {self.kind!r}, expected one of {', '.join(get_args(Kind))}")
        if self.steps < 1 or self.every < 1:
            raise ValueError(f"truncation: got steps {self.steps}, every {self.every}, expected at least 1")
        if self.is_random and self.steps <= self.every:
            wanted = f"more than {self.every}, the symbols between possible cuts"
            raise ValueError(f"truncation: got steps {self.steps}, expected {wanted}")

    @property
    def is_random(self) -> bool:
        """Whether lengths are drawn."""
        return self.kind in ("random", "reweighted")

    @property
    def cut_probability(self) -> float:
        """The probability c of a cut at each possible one."""
        return self.every / self.steps

    def length(self, draw: np.random.Generator) -> int:
        """Give the length of the next stretch; "full": longer than any row."""
        if self.kind == "full":
            return sys.maxsize
        return int(draw.geometric(self.cut_probability)) * self.every if self.is_random else self.steps

    def read(
        self, model: SequenceLayer[M], x: Tensor, memory: M | None = None, valid: Tensor | None = None
    ) -> tuple[Tensor, M]:
        """Read one stretch; "reweighted": in pieces, with the gradient between them multiplied by 1 / (1 − c)."""
        if self.kind != "reweighted":
            return model(x, memory, valid=valid)
        pieces = x.split(self.every, dim=1)
        masks = [None] * len(pieces) if valid is None else valid.split(self.every, dim=1)
        y, memory = model(pieces[0], memory, valid=masks[0])
        outputs = [y]
        for piece, mask in zip(pieces[1:], masks[1:], strict=True):
            y, memory = model(piece, scale_gradient(memory, 1 / (1 - self.cut_probability)), valid=mask)
            outputs.append(y)
        return torch.cat(outputs, dim=1), memory


def scale_gradient(memory: M, factor: float) -> M:
    """Give the same memory; the gradient that flows back through it is multiplied by `factor`."""

    def scale(t: Tensor) -> Tensor:
        return _Scaled.apply(t, factor) if t.is_floating_point() else t  # type: ignore[no-untyped-call]

    return memory._map(scale, lambda m: scale_gradient(m, factor))


class _Scaled(torch.autograd.Function):
    """The identity, with another gradient: a hook would scale what flows back to the outputs as well."""

    @staticmethod
    def forward(ctx: Any, t: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return t.view_as(t)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0] * ctx.factor, None
