"""Where documents end in a text of ids: nothing is predicted across an end, and memory is reset after it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from recollect.data.error import DataError
from recollect.data.text.tokenizer import IdArray

Places: TypeAlias = NDArray[np.int64]
Ends: TypeAlias = NDArray[np.int64] | None  # the index after each document's last symbol; None: one document


class Documents:
    """A text's documents. Symbols predicted are all but the first of each."""

    def __init__(self, ids: IdArray, ends: Ends = None) -> None:
        self.ends = np.array([len(ids)] if len(ids) else [], dtype=np.int64) if ends is None else ends
        last = int(self.ends[-1]) if len(self.ends) else 0
        if last != len(ids):
            raise DataError(f"ends: the last document ends at {last}, expected {len(ids)}, where the text does")
        self.predicted = len(ids) - len(self.ends)

    def around(self, places: Places) -> tuple[Places, Places]:
        """Return the start and the end of each place's document; of a single document only once."""
        if len(self.ends) == 1:
            return np.zeros(1, dtype=np.int64), self.ends
        number = self.ends.searchsorted(places, "right")
        return np.where(number > 0, self.ends[number - 1], 0), np.asarray(self.ends[number])

    def cold_windows(self, steps: int) -> Iterator[tuple[int, int]]:
        """Yield start and size of windows that predict at most `steps` symbols, from the start of each document on."""
        start = 0
        for end in self.ends:
            for place in range(start, int(end) - 1, steps):
                yield place, min(steps, int(end) - 1 - place)
            start = int(end)

    def by_length(self, rows: int, cells: int | None = None) -> Iterator[tuple[Places, Places]]:
        """Yield starts and lengths, longest first, in groups of `rows` documents; with `cells`, of so many symbols.

        Documents of similar length need the least padding when they are read in one batch.
        """
        lengths = np.diff(self.ends, prepend=0)
        order = np.argsort(-lengths, kind="stable")
        first = 0
        while first < len(order):
            fit = rows if cells is None else max(cells // int(lengths[order[first]]), 1)
            group = order[first : first + min(rows, fit)]
            yield self.ends[group] - lengths[group], lengths[group]
            first += len(group)


class Spread:
    """Windows that predict at most `steps` symbols of one document, found by a fraction of the text in [0, 1).

    A document's share is proportional to the symbols it predicts, and at least that of a full window, so that a symbol
    of a short document is read as often as one of a long document. Long documents have full windows only, all equally
    likely; a short one is read from start to end. Documents of one symbol have nothing to predict and no share.
    """

    def __init__(self, documents: Documents, steps: int) -> None:
        self.ends, self.steps = documents.ends, steps
        self.lengths = np.diff(self.ends, prepend=0)
        self.upto = (self._shares(self.lengths) * (self.lengths > 1)).cumsum()

    def _shares(self, lengths: Places) -> Places:
        return np.maximum(lengths - 1, self.steps)

    def at(self, shares: NDArray[np.float64]) -> tuple[Places, Places]:
        """Return each window's start, and the number of symbols that it predicts."""
        exact = shares * self.upto[-1]
        number = self.upto.searchsorted(exact.astype(np.int64), "right")
        lengths = self.lengths[number]
        within = 1 - (self.upto[number] - exact) / self._shares(lengths)  # 0 to below 1
        choices = np.maximum(lengths - self.steps, 1)
        place = np.minimum((within * choices).astype(np.int64), choices - 1)
        return self.ends[number] - lengths + place, np.minimum(lengths - 1, self.steps)
