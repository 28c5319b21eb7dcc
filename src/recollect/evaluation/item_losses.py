"""Losses of single items, for comparing models item by item: their ratio is the loss of `likelihood`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from recollect.core.task import ItemScores
from recollect.core.types import AnyLayer
from recollect.data.images.caption_batches import gather_captions
from recollect.data.images.captions import CaptionPart
from recollect.data.pairs.pair_batches import gather_pairs, groups_by_length
from recollect.data.pairs.pair_rows import PairPart
from recollect.data.text.batches import gather
from recollect.data.text.documents import Documents, Ends, Places
from recollect.data.text.tokenizer import IdArray
from recollect.evaluation.likelihood import _counted, _groups, _losses, _on, _reading, loss_by_position
from recollect.generation.captions import remember
from recollect.generation.log_probability import score
from recollect.models.captioning import Captioner

SHORTEST, LONGEST = 32, 256  # symbols of a text in one item: neighbours depend on each other
BLOCKS = 100  # items that a short text has at least, where that leaves the shortest block


def text_items(
    model: AnyLayer, ids: IdArray, steps: int, ends: Ends, unknown: int | None, *, carried: bool
) -> ItemScores:
    """Return the nats and the numbers of symbols of blocks of a text: with a carried memory, else in windows.

    A block is at most `LONGEST` neighbouring symbols, however they are read.
    """
    sums = _BlockSums(len(ids))
    with _reading(model):
        if carried:
            _add_carried(model, ids, steps, ends, unknown, sums)
        else:
            for starts, counts in _groups(Documents(ids, ends).cold_windows(steps), 32):
                _add(model, ids, (starts, counts), None, unknown, sums)
    positions = loss_by_position(model, ids, steps, ends=ends, unknown=unknown)
    nats, symbols = sums.totals.tolist()
    return ItemScores(nats, symbols, by_position=positions)


def _add_carried(model: AnyLayer, ids: IdArray, steps: int, ends: Ends, unknown: int | None, sums: _BlockSums) -> None:
    for starts, lengths in Documents(ids, ends).by_length(32):
        memory = None
        for done in range(0, int(lengths[0]) - 1, steps):
            rows = slice(int((lengths - 1 > done).sum()))
            if memory is not None and rows.stop < memory.batch_size:
                memory = memory.select(rows)
            where = starts[rows] + done, np.minimum(lengths[rows] - 1 - done, steps)
            memory = _add(model, ids, where, memory, unknown, sums)


def _add(
    model: AnyLayer, ids: IdArray, where: tuple[Places, Places], memory: Any, unknown: int | None, sums: _BlockSums
) -> Any:
    """Read one batch of windows, add its nats to the blocks of the symbols predicted, and return the memory after."""
    x, y, valid = _on(model, gather(ids, *where))
    logits, memory = model(x, memory, valid=valid)
    is_counted = _counted(y, valid, unknown).cpu().numpy()
    losses = _losses(logits, y).cpu().numpy()
    places = where[0][:, None] + 1 + np.arange(y.shape[1])  # (B, T) of the symbols predicted
    sums.add(places[is_counted], losses[is_counted])
    return memory


class _BlockSums:
    """Sums of losses over blocks of a text."""

    def __init__(self, length: int) -> None:
        self.size = min(max(length // BLOCKS, SHORTEST), LONGEST)
        self.totals = np.zeros((2, -(-length // self.size)))  # nats and symbols

    def add(self, places: Places, losses: NDArray[np.float64]) -> None:
        """Add the losses of the symbols at these places."""
        np.add.at(self.totals[0], places // self.size, losses)
        np.add.at(self.totals[1], places // self.size, 1.0)


def target_items(model: Any, part: PairPart, begin: int, end: int, unknown: int | None) -> ItemScores:
    """Return the nats and the numbers of symbols of each target, given its source."""
    tally = _TargetTally(len(part))
    with _reading(model):
        for numbers in groups_by_length(part, np.arange(len(part)), 8192):
            batch = gather_pairs(part, numbers, begin, end)
            source, _, source_valid = _on(model, (batch.source, batch.source, batch.source_valid))
            x, y, valid = _on(model, (batch.x, batch.y, batch.valid))
            logits, _ = model(x, model.remember(source, source_valid), valid=valid)
            tally.add(numbers, _losses(logits, y), _counted(y, valid, unknown))
    return tally.scores()


def caption_items(model: Captioner, part: CaptionPart, begin: int, end: int, unknown: int | None) -> ItemScores:
    """Return the nats and the numbers of symbols of each caption, given its picture."""
    tally = _TargetTally(len(part))
    for numbers in groups_by_length(part.pairs, np.arange(len(part)), batch_size=256):
        batch = gather_captions(part, numbers, begin, end)
        found = score(model, batch.y, batch.valid, remember(model, part.pictures_of(numbers)), begin=begin)
        tally.add(numbers, -found.double(), _counted(batch.y, batch.valid, unknown))
    return tally.scores()


class _TargetTally:
    """Sums of losses by target, and by position in a target."""

    def __init__(self, count: int) -> None:
        self.items = np.zeros((2, count))
        self.positions = np.zeros((2, 0))

    def add(self, numbers: Any, losses: torch.Tensor, is_counted: torch.Tensor) -> None:
        """Add a batch: losses (B, T) of targets by number, where they count."""
        counted = is_counted.cpu().numpy()
        found = losses.cpu().numpy() * counted
        self.items[0][numbers] += found.sum(1)
        self.items[1][numbers] += counted.sum(1)
        longer = max(0, found.shape[1] - self.positions.shape[1])
        self.positions = np.pad(self.positions, ((0, 0), (0, longer)))
        self.positions[:, : found.shape[1]] += found.sum(0), counted.sum(0)

    def scores(self) -> ItemScores:
        """Return the sums; positions that few targets reach are left out."""
        enough = self.positions[1] >= max(1.0, self.items.shape[1] / 10)
        means = self.positions[0][enough] / self.positions[1][enough]
        return ItemScores(self.items[0].tolist(), self.items[1].tolist(), by_position=means.tolist())
