"""Filling gaps: missing values inside a series, from what is known on both sides."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from recollect.core.compose import Bidirectional, Stack
from recollect.core.errors import check_choice
from recollect.core.types import AnyLayer
from recollect.layers.pointwise import Linear
from recollect.models.language import BLOCKS, RECURRENT, LanguageConfig, hidden_layers

SIDES = ("both", "before")


class GapFiller(nn.Module):
    """Values (B, T, C) with gaps to values at every step, read from both sides (Schuster & Paliwal 1997).

    Recurrent families read with a `Bidirectional` layer of half the width on each side, the transformer with attention
    to all steps. sides="before" reads forwards only, at the same width: then a gap is predicted, not interpolated.
    Inputs are the values, 0 where missing, and which of them were observed.

    >>> filler = rc.GapFiller("gru", channels=1, width=8)
    >>> values = torch.tensor([[[1.0], [0.0], [3.0]]])
    >>> filler.fill(values, observed=torch.tensor([[[True], [False], [True]]]))[0, 0].item()  # known values stay
    1.0
    """

    def __init__(self, family: str, channels: int = 1, *, sides: str = "both", width: int = 32, **options: Any) -> None:
        super().__init__()
        check_choice("family", family, (*RECURRENT, "transformer"))
        check_choice("sides", sides, SIDES)
        is_both = sides == "both"
        self.body: AnyLayer
        if family in BLOCKS:
            config = LanguageConfig(family, 1, width=width, **options)
            middle: list[AnyLayer] = hidden_layers(config, causal=not is_both)
        elif is_both:
            half = width // 2
            middle = [Bidirectional(*(RECURRENT[family](width, half) for _ in range(2)))]
        else:
            middle = [RECURRENT[family](width, width)]
        self.body = Stack(Linear(2 * channels, width), *middle, Linear(width, channels))

    def forward(self, values: Tensor, observed: Tensor) -> Tensor:
        """Return an estimate of every value (B, T, C), that of a missing one from the observed ones alone."""
        known = values.masked_fill(~observed, 0.0)
        return self.body(torch.cat([known, observed.to(values.dtype)], dim=2))[0]

    def fill(self, values: Tensor, observed: Tensor) -> Tensor:
        """Return the values, with an estimate where one is missing."""
        return torch.where(observed, values, self(values, observed))
