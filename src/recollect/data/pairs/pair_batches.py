"""Batches of pairs of similar length, epoch after epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import register_dataclass

from recollect.core.memory import pad_axis
from recollect.data.error import DataError
from recollect.data.pairs.pair_rows import PairPart, RaggedArray
from recollect.data.rounds import Numbers, Rounds


@dataclass(frozen=True)
class PairBatch:
    """Sources, and targets as symbols and what follows each of them."""

    source: Tensor  # ids (B, S), or frames (B, S, D)
    source_valid: Tensor | None  # (B, S); None: all are real
    x: Tensor  # (B, T) begin, then the target
    y: Tensor  # (B, T) the target, then end
    valid: Tensor | None  # (B, T); None: all are real
    shapes_vary: ClassVar[bool] = True

    @property
    def count(self) -> int:
        """Symbols predicted."""
        return int(self.y.numel() if self.valid is None else self.valid.sum())


register_dataclass(PairBatch)


class PairBatches(Rounds[PairBatch]):
    """Every pair once an epoch, in an order that is drawn for each epoch.

    Batches have `batch_size` pairs, or as many as fit into `tokens` symbols, with both sides, `begin` and padding
    counted; a longer pair is a batch of its own.
    """

    def __init__(
        self,
        part: PairPart,
        *,
        begin: int,
        end: int,
        tokens: int = 4096,
        batch_size: int | None = None,
        seed: int = 0,
    ) -> None:
        if not len(part):
            raise DataError("got 0 pairs, expected 1 or more; give pairs to train on")
        self.part, self.begin, self.end = part, begin, end
        self.tokens, self.batch_size = tokens, batch_size
        super().__init__(len(part), seed)

    @property
    def predicted(self) -> int:
        """Number of symbols predicted in one epoch: the targets, and the end of each."""
        return int(self.part.targets.lengths.sum()) + len(self.part)

    def groups(self, shuffled: Numbers) -> list[Numbers]:
        """Return groups of pairs of similar length."""
        return groups_by_length(self.part, shuffled, self.tokens, self.batch_size)

    def gather(self, numbers: Numbers) -> PairBatch:
        """Return a group as a batch."""
        return gather_pairs(self.part, numbers, self.begin, self.end)


def groups_by_length(
    part: PairPart, numbers: Numbers, tokens: int = 4096, batch_size: int | None = None
) -> list[Numbers]:
    """Return the numbers in groups of similar length, shortest first; equal lengths keep the given order."""
    sources, targets = part.sources.lengths[numbers], part.targets.lengths[numbers] + 1
    order = np.lexsort((sources, targets))
    if batch_size is not None:
        borders = list(range(batch_size, len(order), batch_size))
    else:
        borders = _borders(sources[order].tolist(), targets[order].tolist(), tokens)
    return np.split(numbers[order], borders)


def _borders(sources: list[int], targets: list[int], tokens: int) -> list[int]:
    """Return where groups begin: where one more pair, padded to the longest of each side, would not fit."""
    borders, first, longest = [], 0, 0
    for place, (source, target) in enumerate(zip(sources, targets, strict=True)):
        longest = max(longest, source)
        if place > first and (place - first + 1) * (longest + target) > tokens:  # targets only grow
            borders.append(place)
            first, longest = place, source
    return borders


def gather_pairs(part: PairPart, numbers: Numbers, begin: int, end: int) -> PairBatch:
    """Return the pairs of these numbers as a batch, padded with zeros."""
    source, lengths = _padded(part.sources, numbers)
    target, counts = _padded(part.targets, numbers)
    edge = torch.zeros(len(numbers), 1, dtype=torch.int64)
    x = torch.cat([edge + begin, target], 1)
    y = torch.cat([target, edge], 1).scatter(1, counts[:, None], end)
    return PairBatch(source, _valid(lengths, source.shape[1]), x, y, _valid(counts + 1, x.shape[1]))


def _padded(rows: RaggedArray, numbers: Numbers) -> tuple[Tensor, Tensor]:
    """Return rows (B, L), or (B, L, D) of frames, and their lengths (B,), by one read of the file."""
    starts = np.where(numbers > 0, rows.ends[numbers - 1], 0)
    lengths = np.asarray(rows.ends[numbers] - starts)
    steps = np.arange(lengths.max(initial=0))
    index = starts[:, None] + steps  # (B, L)
    is_real = steps < lengths[:, None]
    dtype = np.int64 if rows.flat.ndim == 1 else rows.flat.dtype
    found = np.zeros((*index.shape, *rows.flat.shape[1:]), dtype=dtype)
    found[is_real] = rows.flat[index[is_real]]
    return torch.from_numpy(found), torch.from_numpy(lengths)


def _valid(lengths: Tensor, longest: int) -> Tensor | None:
    return None if bool((lengths == longest).all()) else torch.arange(longest) < lengths[:, None]


def pad_batch(batch: PairBatch, rows: int = 16, steps: int = 8) -> PairBatch:
    """Pad the batch to a multiple of `rows`, both its sides to one of `steps`, so that few shapes occur.

    Padding is never valid, and masks are always present, so that batches differ by their shapes alone. Pictures are
    padded by empty ones, which are fully visible; the captions of empty pictures do not count.
    """
    source_valid = batch.source_valid
    if source_valid is None and batch.source.dim() < 4:  # ids or frames
        source_valid = torch.ones(batch.source.shape[:2], dtype=torch.bool, device=batch.source.device)
    valid = torch.ones_like(batch.x, dtype=torch.bool) if batch.valid is None else batch.valid

    def pad(t: Tensor) -> Tensor:
        t = pad_axis(t, 0, _up_to(len(t), rows))
        return pad_axis(t, 1, _up_to(t.shape[1], steps)) if t.dim() < 4 else t

    return PairBatch(
        source=pad(batch.source),
        source_valid=None if source_valid is None else pad(source_valid),
        x=pad(batch.x),
        y=pad(batch.y),
        valid=pad(valid),
    )


def _up_to(count: int, multiple: int) -> int:
    """Round up to a multiple, at least to one."""
    return max(1, -(-count // multiple)) * multiple
