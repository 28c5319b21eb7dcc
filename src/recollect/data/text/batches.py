"""Segments of text to train on, epoch after epoch; the position can be saved and resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._pytree import register_dataclass

from recollect.core.memory import Memory
from recollect.data.error import DataError
from recollect.data.text.documents import Documents, Ends, Places, Spread

FEW = 256  # rows up to which a loop over them is faster than an index of every symbol


@dataclass(frozen=True)
class Batch:
    """Symbols and what follows each of them."""

    x: Tensor  # (B, T)
    y: Tensor  # (B, T)
    valid: Tensor | None  # (B, T); None: all are real
    is_start: Tensor | None  # (B,) memory is reset in this row; None: in none
    shapes_vary: ClassVar[bool] = False

    @property
    def count(self) -> int:
        """Symbols predicted."""
        return int(self.y.numel() if self.valid is None else self.valid.sum())


register_dataclass(Batch)


class Streams:
    """Contiguous streams: the text in `batch_size` rows, read in order, so that memory may be carried.

    A row's segment stops where a document ends; the next segment is the next document's, with the memory reset. Rows
    that are finished wait for the others, then all begin a new epoch. `length` draws the length of each segment, 1 or
    more; by default it is always `steps`.
    """

    def __init__(
        self,
        ids: NDArray[Any],
        batch_size: int,
        steps: int,
        ends: Ends = None,
        length: Callable[[np.random.Generator], int] | None = None,
        seed: int = 0,
    ) -> None:
        if len(ids) <= batch_size:
            raise DataError(f"got {len(ids)} symbols, expected more than {batch_size}, one for each row; lower --batch")
        self.ids, self.steps, self.length = ids, steps, length
        self.documents = _some_to_predict(ids, ends)
        borders = np.arange(batch_size + 1) * (len(ids) - 1) // batch_size  # rows differ by one symbol at most
        self.stops = borders[1:]  # (B,) the symbol there is still predicted
        self.starts = self._onward(borders[:-1])
        self.places = self.starts  # (B,) the next to be read
        self.draw = np.random.default_rng(seed)

    @property
    def predicted(self) -> int:
        """Number of symbols predicted in one epoch."""
        return self.documents.predicted

    def __iter__(self) -> Iterator[Batch]:
        """Yield batches from the current position on, epoch after epoch."""
        while True:
            places = self.places
            start, end = self.documents.around(places)
            longest = self.steps if self.length is None else self.length(self.draw)
            counts = np.maximum(np.minimum(np.minimum(end - 1, self.stops) - places, longest), 0)
            self.places = self._onward(places + counts)
            if (self.places >= self.stops).all():
                self.places = self.starts
            is_start = (places == start) | (places == self.starts)
            yield Batch(*gather(self.ids, places, counts), torch.from_numpy(is_start))

    def _onward(self, places: Places) -> Places:
        """Return the places without the last symbols of documents, from which nothing is predicted."""
        while True:
            is_last = (places < self.stops) & (places == self.documents.around(places)[1] - 1)
            if not is_last.any():
                return places
            places = places + is_last

    def state(self) -> dict[str, Any]:
        """Return the position: the place of each row, and the random state."""
        return {"places": self.places.tolist(), "draw": self.draw.bit_generator.state}

    def load_state(self, state: dict[str, Any]) -> None:
        """Resume from a position."""
        self.places = np.array(state["places"], dtype=np.int64)
        self.draw.bit_generator.state = state["draw"]


class Windows:
    """Random independent windows of the text, none across a document's end."""

    def __init__(self, ids: NDArray[Any], batch_size: int, steps: int, ends: Ends = None, seed: int = 0) -> None:
        if len(ids) <= steps:
            raise DataError(f"got {len(ids)} symbols, expected more than a window's {steps}; lower --steps")
        self.ids, self.batch_size, self.steps = ids, batch_size, steps
        self.documents = _some_to_predict(ids, ends)
        self.spread = Spread(self.documents, steps)
        self.draw = np.random.default_rng(seed)

    @property
    def predicted(self) -> int:
        """Number of symbols of the text that can be predicted."""
        return self.documents.predicted

    def __iter__(self) -> Iterator[Batch]:
        """Yield random windows without end."""
        is_start = torch.ones(self.batch_size, dtype=torch.bool)
        while True:
            yield Batch(*gather(self.ids, *self.spread.at(self.draw.random(self.batch_size))), is_start)

    def state(self) -> dict[str, Any]:
        """Return the position: the random state."""
        return {"draw": self.draw.bit_generator.state}

    def load_state(self, state: dict[str, Any]) -> None:
        """Resume from a position."""
        self.draw.bit_generator.state = state["draw"]


def gather(ids: NDArray[Any], places: Places, counts: Places) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return x, y and valid (B, T): `counts` symbols from each place on and those after them, by one read of the file.

    T is the largest count; shorter rows are padded with zeros, and where none is shorter, valid is None.
    """
    longest = int(counts.max(initial=0))
    both = torch.from_numpy(_rows(ids, places, longest + 1))  # (B, T + 1)
    x, y = both[:, :-1], both[:, 1:]
    if (counts == longest).all():
        return x, y, None
    valid = torch.arange(longest) < torch.from_numpy(counts)[:, None]
    return x.masked_fill(~valid, 0), y.masked_fill(~valid, 0), valid


def _rows(ids: NDArray[Any], places: Places, count: int) -> NDArray[np.int64]:
    """Return `count` symbols from each place on; beyond the end the last is repeated."""
    is_inside = int(places.max(initial=0)) + count <= len(ids)
    if len(places) > FEW or not is_inside:
        return np.asarray(ids.take(places[:, None] + np.arange(count), mode="clip"), dtype=np.int64)
    flat, found = ids.view(np.ndarray), np.empty((len(places), count), dtype=np.int64)
    for row, place in zip(found, places.tolist(), strict=True):  # slices are copied faster than single symbols
        row[:] = flat[place : place + count]
    return found


def reset_rows(memory: Memory, fresh: Memory, is_start: Tensor) -> Memory:
    """Return the memory with the rows that start set to the fresh one."""
    if not bool(is_start.any()):
        return memory
    if bool(is_start.all()):
        return fresh
    rows = torch.arange(len(is_start))
    return Memory.cat([memory, fresh]).select(rows + len(rows) * is_start.cpu())


def _some_to_predict(ids: NDArray[Any], ends: Ends) -> Documents:
    documents = Documents(ids, ends)
    if documents.predicted < 1:
        raise DataError(f"got {len(ids)} documents of one symbol each, expected one of two or more; give another text")
    return documents
