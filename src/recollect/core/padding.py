"""Sequences of different lengths as one batch: right padding and a mask."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def pad(sequences: Sequence[Sequence[int] | Tensor]) -> tuple[Tensor, Tensor]:
    """Return sequences as one batch x (B, T, …), zeros on the right, and `valid` (B, T), True at real steps.

    A sequence is a list of ids or a tensor (T,) or (T, D). All tensors of one call have the same dtype and width.

    >>> x, valid = pad([[5, 6, 7], [8]])
    >>> x.tolist(), valid.tolist()
    ([[5, 6, 7], [8, 0, 0]], [[True, True, True], [True, False, False]])
    """
    rows = [row if isinstance(row, Tensor) else torch.tensor(row, dtype=torch.long) for row in sequences]
    lengths = torch.tensor([len(row) for row in rows], dtype=torch.long)
    longest = int(lengths.max()) if rows else 0
    like = rows[0] if rows else torch.zeros(0, dtype=torch.long)
    x = like.new_zeros(len(rows), longest, *like.shape[1:])
    for place, row in zip(x, rows, strict=True):
        place[: len(row)] = row
    return x, (torch.arange(longest) < lengths[:, None]).to(like.device)
