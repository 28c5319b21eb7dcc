"""Batches of similar length, epoch after epoch; the position can be saved and resumed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from recollect.core.types import JsonObject

Numbers = NDArray[np.int64]
B = TypeVar("B")


class Rounds(Generic[B]):
    """Every example once an epoch, in an order that is drawn for each epoch.

    Examples are shuffled and then grouped by length, so that those of equal length are grouped differently in every
    epoch, and the groups are shuffled again. A subclass defines `groups` and `gather`, and sets what they need before
    it calls this constructor.
    """

    def __init__(self, size: int, seed: int) -> None:
        self.size = size
        self.draw = np.random.default_rng(seed)
        self.epoch = 0  # finished epochs
        self.place = 0  # finished batches of this one
        self.before = self.draw.bit_generator.state  # the random state at the start of this epoch
        self.round = self._begin_round()

    def groups(self, shuffled: Numbers) -> list[Numbers]:
        """Return the numbers in groups of similar length; equal lengths keep the given order."""
        raise NotImplementedError

    def gather(self, numbers: Numbers) -> B:
        """Return the examples of these numbers as a batch."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[B]:
        """Yield batches from the current position on, epoch after epoch."""
        while True:
            if self.place == len(self.round):
                self.epoch, self.place = self.epoch + 1, 0
                self.before = self.draw.bit_generator.state
                self.round = self._begin_round()
            numbers = self.round[self.place]
            self.place += 1
            yield self.gather(numbers)

    def _begin_round(self) -> list[Numbers]:
        groups = self.groups(self.draw.permutation(self.size))
        return [groups[number] for number in self.draw.permutation(len(groups))]

    def state(self) -> JsonObject:
        """Return the position: the epoch, its finished batches, and the random state at its start."""
        return {"epoch": self.epoch, "place": self.place, "draw": self.before}

    def load_state(self, state: JsonObject) -> None:
        """Resume from a position."""
        self.epoch, self.place, self.before = state["epoch"], state["place"], state["draw"]
        self.draw.bit_generator.state = self.before
        self.round = self._begin_round()
