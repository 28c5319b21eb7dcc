"""Windows with a gap that a model learns to fill: some rows in them are hidden."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import register_dataclass

from recollect.data.series.windows import SeriesWindows, WindowBatch, WindowBatches

ALL_CHANNELS = 0.5  # of the gaps hide every channel, the others some of them


@dataclass(frozen=True)
class GapBatch:
    """Windows in scaled units, what may be read of them, and what is to be found."""

    values: Tensor  # (B, T, C), 0 where hidden
    observed: Tensor  # (B, T, C), True where a value may be read
    hidden: Tensor  # (B, T, C), True where a value is known and hidden
    targets: Tensor  # (B, T, C), the values that are hidden
    series: Tensor  # (B,)
    shapes_vary: ClassVar[bool] = False

    @property
    def count(self) -> int:
        """The windows."""
        return len(self.values)


register_dataclass(GapBatch)


def hide(batch: WindowBatch, gap: Tensor, *, is_open: bool) -> GapBatch:
    """Return windows in which `gap` (B, T, C) is hidden; `is_open`: what comes after its first row is, too."""
    values = torch.cat([batch.x, batch.y], dim=1)
    known = torch.ones_like(values, dtype=torch.bool)
    if batch.observed is not None and batch.known is not None:
        known = torch.cat([batch.observed, batch.known], dim=1)
    hidden = known & gap
    observed = known & ~gap
    if is_open:
        begun = gap.any(2, keepdim=True).cummax(1).values  # (B, T, 1), from the first row of the gap on
        observed = observed & ~begun
    return GapBatch(values.masked_fill(~observed, 0.0), observed, hidden, values, batch.series)


def middle_gap(batch: WindowBatch, rows: int) -> Tensor:
    """Return a gap (B, T, C) of `rows` rows after the first part of each window."""
    length = batch.x.shape[1] + batch.y.shape[1]
    steps = torch.arange(length)
    is_gap = (steps >= batch.x.shape[1]) & (steps < batch.x.shape[1] + rows)
    return is_gap[None, :, None].expand(len(batch.x), -1, batch.x.shape[2])


class GapBatches:
    """Every window once an epoch, each with a gap of 1 to `rows` rows at a place that is drawn."""

    def __init__(
        self, part: SeriesWindows, rows: int, batch_size: int, seed: int = 0, *, is_open: bool = False
    ) -> None:
        self.windows = WindowBatches(part, batch_size, seed)
        self.rows, self.seed, self.is_open = rows, seed, is_open
        self.drawn = 0  # batches

    @property
    def predicted(self) -> int:
        """The number of windows in one epoch."""
        return len(self.windows.part)

    def __iter__(self) -> Iterator[GapBatch]:
        """Yield batches from the current position on, epoch after epoch."""
        for batch in self.windows:
            draw = np.random.default_rng([self.seed, self.drawn])
            self.drawn += 1
            yield hide(batch, _drawn_gap(batch, self.rows, draw), is_open=self.is_open)

    def state(self) -> dict[str, Any]:
        """Return the position: that of the windows, and how many batches were drawn."""
        return {"windows": self.windows.state(), "drawn": self.drawn}

    def load_state(self, state: dict[str, Any]) -> None:
        """Resume from a position."""
        self.windows.load_state(state["windows"])
        self.drawn = state["drawn"]


def _drawn_gap(batch: WindowBatch, rows: int, draw: np.random.Generator) -> Tensor:
    """Return a gap (B, T, C) for each window: one row at least is known before it and after it."""
    count, before, channels = batch.x.shape
    length = before + batch.y.shape[1]
    sizes = draw.integers(1, min(rows, length - 2) + 1, count)
    firsts = 1 + (draw.random(count) * (length - 1 - sizes)).astype(np.int64)
    steps = np.arange(length)
    is_row = (steps >= firsts[:, None]) & (steps < (firsts + sizes)[:, None])  # (B, T)
    is_channel = draw.random((count, channels)) < 0.5
    is_all = (draw.random(count) < ALL_CHANNELS) | ~is_channel.any(1)
    is_channel |= is_all[:, None]
    return torch.from_numpy(is_row[:, :, None] & is_channel[:, None])
