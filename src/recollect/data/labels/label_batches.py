"""Batches of labelled examples of similar length, epoch after epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import register_dataclass

from recollect.core.threads import pace
from recollect.data.labels.labelled import LabelPart
from recollect.data.rounds import Numbers, Rounds

STEPS = 1 << 18  # of a batch of an evaluation, padding included


@dataclass(frozen=True)
class LabelBatch:
    """Ids, and the numbers of the labels: one for each row, or for each step."""

    x: Tensor  # ids (B, T), or (B, T, 1 + L) with letters; frames (B, T, D)
    valid: Tensor | None  # (B, T); None: all are real
    y: Tensor  # (B,) or (B, T); −1 where there is none
    features: Tensor | None = None  # (B, D): the inputs of the head, where they are known; then x has no steps
    shapes_vary: ClassVar[bool] = True

    @property
    def count(self) -> int:
        """Labels that are predicted."""
        return int((self.y >= 0).sum())


register_dataclass(LabelBatch)


class LabelBatches(Rounds[LabelBatch]):
    """Every example once an epoch, `batch_size` of similar length in a batch."""

    def __init__(self, part: LabelPart, batch_size: int, *, by_step: bool, seed: int = 0) -> None:
        self.part, self.batch_size, self.by_step = part, batch_size, by_step
        self.lengths = np.array([len(ids) for ids in part.ids])
        super().__init__(len(part), seed)

    @property
    def predicted(self) -> int:
        """Number of labels predicted in one epoch."""
        return self.part.predicted

    def groups(self, shuffled: Numbers) -> list[Numbers]:
        """Return groups of examples of similar length."""
        order = shuffled[np.argsort(self.lengths[shuffled], kind="stable")]
        return np.split(order, range(self.batch_size, len(order), self.batch_size))

    def gather(self, numbers: Numbers) -> LabelBatch:
        """Return a group as a batch."""
        return gather_labels(self.part, numbers, by_step=self.by_step)


def gather_labels(part: LabelPart, numbers: Numbers, *, by_step: bool) -> LabelBatch:
    """Return the examples of these numbers as a batch, padded with zeros."""
    if part.features is not None:
        y = torch.from_numpy(np.concatenate([part.targets[i] for i in numbers]))
        return LabelBatch(torch.zeros(len(numbers), 0), None, y, torch.from_numpy(part.features[numbers]))
    rows = [part.ids[i] for i in numbers]
    lengths = torch.tensor([len(row) for row in rows])
    longest = int(lengths.max()) if rows else 0
    dtype = torch.float32 if rows[0].dtype == np.float32 else torch.long
    x = torch.zeros(len(rows), longest, *rows[0].shape[1:], dtype=dtype)
    y = torch.full((len(rows), longest), -1)
    for i, number in enumerate(numbers):
        x[i, : lengths[i]] = torch.from_numpy(rows[i])
        if by_step:
            y[i, : lengths[i]] = torch.from_numpy(part.targets[number])
    if not by_step:
        y = torch.from_numpy(np.concatenate([part.targets[i] for i in numbers]))
    valid = torch.arange(longest) < lengths[:, None]
    return LabelBatch(x, None if bool(valid.all()) else valid, y)


def in_order(part: LabelPart, batch_size: int, *, by_step: bool) -> Iterator[tuple[Numbers, LabelBatch]]:
    """Yield all examples once, the longest first, with their numbers; the longest of all in smaller batches."""
    order = np.argsort([-len(ids) for ids in part.ids], kind="stable")
    start = 0
    while start < len(order):
        pace()
        longest = len(part.ids[order[start]])
        numbers = order[start : start + max(1, min(batch_size, STEPS // max(longest, 1)))]
        yield numbers, gather_labels(part, numbers, by_step=by_step)
        start += len(numbers)
