"""Stretches of text to train on, again and again; the place can be kept and gone on from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recollect.data.error import DataError


@dataclass(frozen=True)
class Batch:
    """Symbols and what follows each of them."""

    x: Tensor  # (B, T)
    y: Tensor  # (B, T)
    valid: Tensor | None  # (B, T); None: all are real
    is_start: bool  # nothing was read before: memory begins anew


class Streams:
    """Contiguous streams: the text in `batch_size` rows, read in order, so that memory may be carried."""

    def __init__(self, ids: NDArray[Any], batch_size: int, steps: int) -> None:
        self.ids, self.steps = ids, steps
        self.length = (len(ids) - 1) // batch_size  # symbols to a row
        if self.length < 1:
            raise DataError(f"seen {len(ids)} symbols, wanted more than {batch_size}, one for each row; lower --batch")
        self.rows = np.arange(batch_size)[:, None] * self.length  # (B, 1)
        self.place = 0

    def __iter__(self) -> Iterator[Batch]:
        """Go on from the place, round after round; a round's last stretch may be shorter."""
        while True:
            start, stop = self.place, min(self.place + self.steps, self.length)
            self.place = 0 if stop == self.length else stop
            yield _gather(self.ids, self.rows + np.arange(start, stop), is_start=start == 0)

    def state(self) -> dict[str, Any]:
        """Give the place."""
        return {"place": self.place}

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from a place."""
        self.place = int(state["place"])


class Windows:
    """Random windows of the text, each by itself."""

    def __init__(self, ids: NDArray[Any], batch_size: int, steps: int, seed: int = 0) -> None:
        if len(ids) <= steps:
            raise DataError(f"seen {len(ids)} symbols, wanted more than a window's {steps}; lower --steps")
        self.ids, self.batch_size, self.steps = ids, batch_size, steps
        self.draw = np.random.default_rng(seed)

    def __iter__(self) -> Iterator[Batch]:
        """Draw windows for ever."""
        while True:
            starts = self.draw.integers(0, len(self.ids) - self.steps, size=(self.batch_size, 1))
            yield _gather(self.ids, starts + np.arange(self.steps), is_start=True)

    def state(self) -> dict[str, Any]:
        """Give the place: the random numbers' state."""
        return {"draw": self.draw.bit_generator.state}

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from a place."""
        self.draw.bit_generator.state = state["draw"]


def _gather(ids: NDArray[Any], index: NDArray[np.int64], *, is_start: bool) -> Batch:
    """Give the symbols at an index (B, T) and those after them, by one look into the file."""
    both = np.asarray(ids[np.concatenate([index, index[:, -1:] + 1], axis=1)], dtype=np.int64)  # (B, T + 1)
    whole = torch.from_numpy(both)
    return Batch(whole[:, :-1], whole[:, 1:], None, is_start)
