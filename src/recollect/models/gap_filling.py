"""Filling gaps: missing values inside a series, from what is known on both sides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from recollect.core.compose import Bidirectional, Stack
from recollect.core.errors import check_choice
from recollect.core.settings import setting
from recollect.core.types import AnyLayer
from recollect.layers.pointwise import Dropout, Linear
from recollect.models.language import BLOCKS, RECURRENT, LanguageConfig, hidden_layers
from recollect.models.reversible_norm import ReversibleNorm
from recollect.models.simple_fills import interpolated, last_seen, neighbouring_seasons

SIDES = ("both", "before")
FILLERS = (*RECURRENT, "transformer")


@dataclass(frozen=True)
class FillConfig:
    """The config of a gap filler.

    >>> rc.GapFiller(rc.FillConfig("gru", channels=2, width=8)).config.sides
    'both'
    """

    family: str
    channels: int = 1
    season: int = 1  # steps; above 1 the seasons beside a gap are read
    sides: str = setting("both", choices=SIDES, help="what is read: both sides of a gap, or what comes before it")
    width: int = setting(32, least=1)
    layers: int = setting(1, least=1)
    heads: int = setting(4, least=1, most=4096)
    dropout: float = setting(0.0, least=0.0, below=1.0)

    def __post_init__(self) -> None:
        check_choice("family", self.family, FILLERS)
        check_choice("sides", self.sides, SIDES)


class GapFiller(nn.Module):
    """Values (B, T, C) with gaps to values at every step, read from both sides (Schuster & Paliwal 1997).

    Recurrent families read with `Bidirectional` layers of half the width on each side, the transformer with attention
    to all steps. The output is added to a simple estimate: the straight line between the neighbours of a gap, mixed
    with the seasons before and after it where there is a `season`. sides="before" reads forwards only, at the same
    width, and adds to the last value: then a gap is predicted, not interpolated. Inputs are the values, simple
    estimates where one is missing, and which of them were observed.

    >>> filler = rc.GapFiller("gru", channels=1, width=8)
    >>> values = torch.tensor([[[1.0], [0.0], [3.0]]])
    >>> filler.fill(values, observed=torch.tensor([[[True], [False], [True]]]))[0, 0].item()  # known values stay
    1.0
    """

    def __init__(self, config: FillConfig | str, channels: int = 1, **options: Any) -> None:
        super().__init__()
        if isinstance(config, str):
            config = FillConfig(config, channels, **options)
        self.config = config
        self.growth = "linear"  # a window is read whole
        self.norm = ReversibleNorm(config.channels, affine=False)
        is_seasonal = config.season > 1
        self.share = nn.Parameter(torch.full((config.channels,), 0.5)) if is_seasonal else None  # of the seasons
        first = Linear((3 if is_seasonal else 2) * config.channels, config.width)
        last = Linear(config.width, config.channels)
        self.body: AnyLayer = Stack(first, *_middle(config), last)

    def forward(self, values: Tensor, observed: Tensor) -> Tensor:
        """Return an estimate of every value (B, T, C), that of a missing one from the observed ones alone."""
        is_both = self.config.sides == "both"
        simple = interpolated(values, observed) if is_both else last_seen(values, observed)
        inputs = [simple, observed.to(values.dtype)]
        if self.share is not None:
            seasonal = neighbouring_seasons(values, observed, self.config.season, is_both=is_both)
            inputs.append(seasonal)
            simple = torch.lerp(simple, seasonal, self.share)
        return simple + self.body(torch.cat(inputs, dim=2))[0]

    def estimate(self, values: Tensor, observed: Tensor) -> Tensor:
        """Return the same of a window at any level: mean and deviation of what was observed in it are removed."""
        normal, shift, scale = self.norm(values, observed)
        return self(normal, observed) * scale + shift

    def fill(self, values: Tensor, observed: Tensor) -> Tensor:
        """Return the values, with an estimate where one is missing."""
        return torch.where(observed, values, self(values, observed))


def _middle(config: FillConfig) -> list[AnyLayer]:
    is_both = config.sides == "both"
    if config.family in BLOCKS:
        names = ("width", "layers", "heads", "dropout")
        shape = {name: getattr(config, name) for name in names}
        return hidden_layers(LanguageConfig(config.family, 1, **shape), causal=not is_both)
    make, width = RECURRENT[config.family], config.width
    drop = [Dropout(width, config.dropout)] if config.dropout else []
    found: list[AnyLayer] = []
    for _ in range(config.layers):
        half = width // 2
        layer = Bidirectional(make(width, width - half), make(width, half)) if is_both else make(width, width)
        found += [layer, *drop]
    return found
