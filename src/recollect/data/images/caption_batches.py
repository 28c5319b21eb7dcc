"""Captions to train on, again and again: those of like length side by side, with their pictures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from recollect.data.images.captions import CaptionPart
from recollect.data.pairs.pair_batches import Numbers, PairBatch, PairBatches, gather_pairs


class CaptionBatches:
    """Every caption once a round, as `PairBatches` deals them; a batch's source is pictures (B, h, w, c)."""

    def __init__(self, part: CaptionPart, *, begin: int, end: int, batch_size: int, seed: int = 0) -> None:
        self.part = part
        self.pairs = PairBatches(part.pairs, begin=begin, end=end, batch_size=batch_size, seed=seed)

    @property
    def predicted(self) -> int:
        """Symbols that one round predicts: the captions, and the end of each."""
        return self.pairs.predicted

    def __iter__(self) -> Iterator[PairBatch]:
        """Go on from the place, round after round."""
        return (_with_pictures(self.part, batch) for batch in self.pairs)

    def state(self) -> dict[str, Any]:
        """Give the place."""
        return self.pairs.state()

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from a place."""
        self.pairs.load_state(state)


def gather_captions(part: CaptionPart, numbers: Numbers, begin: int, end: int) -> PairBatch:
    """Give some captions and their pictures as a batch."""
    return _with_pictures(part, gather_pairs(part.pairs, numbers, begin, end))


def _with_pictures(part: CaptionPart, batch: PairBatch) -> PairBatch:
    """Put the pictures themselves where their numbers stand."""
    return replace(batch, source=torch.from_numpy(part.pictures[batch.source[:, 0].numpy()]))
