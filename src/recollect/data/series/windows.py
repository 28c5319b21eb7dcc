"""Windows over series: `lookback` rows that are read and the `horizon` rows after them that are predicted.

All series lie one after another in one tensor, and a window is the number of its first row. Missing values are filled
with the last value seen (0 before the first), and `observed` tells them apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._pytree import register_dataclass

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class WindowBatch:
    """Windows of a batch, in scaled units."""

    x: Tensor  # (B, L, C)
    observed: Tensor | None  # (B, L, C), True where a value is no filling; None: all are
    calendar: Tensor | None  # (B, L + H, K)
    y: Tensor  # (B, H, C)
    known: Tensor | None  # (B, H, C), True where there is a value to compare with; None: all are
    series: Tensor  # (B,), the number of each window's series
    shapes_vary: ClassVar[bool] = False

    @property
    def count(self) -> int:
        """Values predicted."""
        return int(self.y.numel() if self.known is None else self.known.sum())


register_dataclass(WindowBatch)


@dataclass(frozen=True)
class Rows:
    """The rows of all series, one after another."""

    values: Tensor  # (R, C), scaled and filled
    observed: Tensor | None  # (R, C)
    calendar: Tensor | None  # (R, K)
    series: Tensor  # (R,), the number of a row's series


@dataclass(frozen=True)
class SeriesWindows:
    """One part of the data: its windows by the number of their first row."""

    rows: Rows
    starts: Numbers  # (N,)
    lookback: int
    horizon: int

    def __len__(self) -> int:
        return len(self.starts)

    def gather(self, numbers: Numbers) -> WindowBatch:
        """Return the windows of these numbers as a batch."""
        first = torch.from_numpy(self.starts[numbers])
        index = first[:, None] + torch.arange(self.lookback + self.horizon)  # (B, L + H)
        values = self.rows.values[index]  # (B, L + H, C)
        observed = None if self.rows.observed is None else self.rows.observed[index]
        calendar = None if self.rows.calendar is None else self.rows.calendar[index]
        cut = self.lookback
        return WindowBatch(
            x=values[:, :cut],
            observed=None if observed is None else observed[:, :cut],
            calendar=calendar,
            y=values[:, cut:],
            known=None if observed is None else observed[:, cut:],
            series=self.rows.series[first],
        )

    def in_order(self, size: int, limit: int | None = None) -> Iterator[WindowBatch]:
        """Yield all windows, or the first `limit`, in order; the last batch may be smaller and counts."""
        numbers = np.arange(min(len(self), limit or len(self)))
        for begin in range(0, len(numbers), size):
            yield self.gather(numbers[begin : begin + size])


class WindowBatches:
    """Every window once an epoch, in an order that is drawn for each epoch; the last batch may be smaller."""

    def __init__(self, part: SeriesWindows, batch_size: int, seed: int = 0) -> None:
        self.part, self.batch_size = part, batch_size
        self.draw = np.random.default_rng(seed)
        self.place = 0  # windows of this epoch that are done
        self.before = self.draw.bit_generator.state  # the random state at the start of this epoch
        self.order = self.draw.permutation(len(part))

    @property
    def predicted(self) -> int:
        """The number of values predicted in one epoch, where none is missing."""
        return len(self.part) * self.part.horizon * self.part.rows.values.shape[1]

    def __iter__(self) -> Iterator[WindowBatch]:
        """Yield batches from the current position on, epoch after epoch."""
        while True:
            if self.place >= len(self.part):
                self.place = 0
                self.before = self.draw.bit_generator.state
                self.order = self.draw.permutation(len(self.part))
            numbers = self.order[self.place : self.place + self.batch_size]
            self.place += self.batch_size
            yield self.part.gather(numbers)

    def state(self) -> dict[str, Any]:
        """Return the position: the windows done, and the random state at the epoch's start."""
        return {"place": self.place, "draw": self.before}

    def load_state(self, state: dict[str, Any]) -> None:
        """Resume from a position."""
        self.place, self.before = state["place"], state["draw"]
        self.draw.bit_generator.state = self.before
        self.order = self.draw.permutation(len(self.part))
