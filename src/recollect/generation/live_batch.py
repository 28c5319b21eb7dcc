"""A batch whose rows join and leave at every step: one memory, one tensor of logits, one step for all rows.

A row that leaves keeps its place until another takes it, so that nothing is copied while as many join as leave. Where
too many places are empty the rows are selected together. Empty places read along and are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from recollect.core.memory import Memory
from recollect.core.placement import fits, forget_rows, place, steps_read
from recollect.generation.prefill import RESERVED, Model, full_precision


class LiveBatch:
    """The rows that are being continued, by their places 0, 1, …"""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.is_growing = model.growth == "linear"  # its slots are reserved here, in place
        self.logits: Tensor | None = None  # (B, V) for each row's next id
        self._memory: Memory | None = None
        self._steps: list[int] = []  # that each place has read
        self._taken: list[bool] = []
        self._slots = 0  # reserved, of a growing memory

    def __len__(self) -> int:
        return len(self._taken)

    @property
    def nbytes(self) -> int:
        """Bytes of the memory and the logits of all places."""
        return sum(0 if one is None else one.nbytes for one in (self._memory, self.logits))

    def join(self, memory: Memory, logits: Tensor) -> tuple[list[int], list[int]]:
        """Add the rows of a memory with their logits (B, V).

        Returns the places that were kept, in their new order, and then those of the new rows.
        """
        memory = memory.settled()
        count = len(logits)
        kept = list(range(len(self._taken)))
        places = [i for i in kept if not self._taken[i]][:count]
        if self._memory is not None and self.logits is not None and len(places) == count and fits(self._memory, memory):
            self._memory = place(self._memory, places, memory)
            self.logits.index_copy_(0, torch.tensor(places, device=logits.device), logits)
        else:
            kept = [i for i in kept if self._taken[i]]
            places = list(range(len(kept), len(kept) + count))
            self._append(kept, memory, logits)
        for i, read in zip(places, steps_read(memory), strict=True):
            self._taken[i] = True
            self._steps[i] = read
        return kept, places

    def _append(self, kept: list[int], memory: Memory, logits: Tensor) -> None:
        """Drop all other places than `kept`, and add rows behind them."""
        if self._memory is None or self.logits is None:
            self._memory, self.logits = type(memory).cat([memory]), logits.clone()  # a copy
        else:
            self.select(kept)
            joined = type(memory).cat([self._memory.settled(), memory])
            self._memory, self.logits = joined, torch.cat([self.logits, logits])  # both, or neither
        self._taken += [False] * len(logits)
        self._steps += [0] * len(logits)
        self._slots = 0  # none reserved

    def leave(self, places: Sequence[int]) -> None:
        """Empty some places."""
        for i in places:
            self._taken[i] = False
        if not any(self._taken):
            self._memory = self.logits = None
            self._taken = []
            self._steps = []

    def select(self, rows: list[int]) -> None:
        """Keep some places only, in this order."""
        if rows == list(range(len(self._taken))):
            return
        assert self._memory is not None
        assert self.logits is not None
        self._memory, self.logits = self._memory.select(rows), self.logits[rows]  # both, or neither
        self._taken = [self._taken[i] for i in rows]
        self._steps = [self._steps[i] for i in rows]

    def compact(self) -> list[int] | None:
        """Drop the empty places where they are a quarter or more; return which places were kept, None: all."""
        kept = [i for i, taken in enumerate(self._taken) if taken]
        if 4 * (len(self._taken) - len(kept)) < max(len(self._taken), 1):
            return None
        self.select(kept)
        return kept

    def read(self, ids: Sequence[int]) -> None:
        """Read one more id in each place; what an empty one reads does not matter."""
        assert self.logits is not None
        self._limit_empty_places()
        if self.is_growing:
            self._reserve()
        x = torch.tensor(ids, device=self.logits.device)[:, None]  # (B, 1)
        y, self._memory = self.model(x, self._memory)
        self.logits = full_precision(y[:, 0])
        self._steps = [read + 1 for read in self._steps]

    def row(self, i: int) -> tuple[Memory, Tensor]:
        """Return copies of the memory of one place (one row) and of its logits (1, V)."""
        assert self._memory is not None
        assert self.logits is not None
        return self._memory.select([i]).settled(), self.logits[[i]]

    def _limit_empty_places(self) -> None:
        """Empty places read along: never beyond the furthest of the others, whose slots and positions suffice."""
        furthest = max(read for read, taken in zip(self._steps, self._taken, strict=True) if taken)
        both = zip(self._steps, self._taken, strict=True)
        beyond = [i for i, (read, taken) in enumerate(both) if not taken and read >= furthest]
        if beyond:
            assert self._memory is not None
            self._memory = forget_rows(self._memory, beyond)
            for i in beyond:
                self._steps[i] = 0

    def _reserve(self) -> None:
        """Reserve slots where a row has none left, or where most are reserved for rows that have left."""
        furthest = max(self._steps)
        if furthest < self._slots <= 2 * furthest + 4 * RESERVED:
            return
        assert self._memory is not None
        memory = self._memory.settled()
        more = max(RESERVED, furthest // 4)
        self._slots = furthest + more
        self._memory = memory.reserve(more, in_place=True)
