"""Batches of captions of similar length, with their pictures, epoch after epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from recollect.core.types import JsonObject
from recollect.data.images.captions import CaptionPart
from recollect.data.pairs.pair_batches import PairBatch, PairBatches, gather_pairs
from recollect.data.rounds import Numbers


class CaptionBatches:
    """Every caption once an epoch, in the order of `PairBatches`; a batch's source is pictures (B, h, w, c)."""

    def __init__(self, part: CaptionPart, *, begin: int, end: int, batch_size: int, seed: int = 0) -> None:
        self.part = part
        self.pairs = PairBatches(part.pairs, begin=begin, end=end, batch_size=batch_size, seed=seed)

    @property
    def predicted(self) -> int:
        """Number of symbols predicted in one epoch: the captions, and the end of each."""
        return self.pairs.predicted

    def __iter__(self) -> Iterator[PairBatch]:
        """Yield batches from the current position on, epoch after epoch."""
        return (_with_pictures(self.part, batch) for batch in self.pairs)

    def state(self) -> JsonObject:
        """Return the position, for `load_state`."""
        return self.pairs.state()

    def load_state(self, state: JsonObject) -> None:
        """Resume from a position."""
        self.pairs.load_state(state)


def gather_captions(part: CaptionPart, numbers: Numbers, begin: int, end: int) -> PairBatch:
    """Return the captions of these numbers and their pictures as a batch."""
    return _with_pictures(part, gather_pairs(part.pairs, numbers, begin, end))


def _with_pictures(part: CaptionPart, batch: PairBatch) -> PairBatch:
    """Return the batch with the numbers of pictures replaced by the pictures."""
    return replace(batch, source=torch.from_numpy(part.pictures[batch.source[:, 0].numpy()]))
