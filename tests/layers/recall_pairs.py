"""Associative recall: rows of keys with their values, and one of the keys to ask for."""

from __future__ import annotations

import torch
from torch import Tensor

SYMBOLS, PAIRS, WIDTH = 12, 8, 16


def pairs(seed: int, count: int) -> tuple[tuple[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """Draw rows of 2 to PAIRS pairs with different keys, a key to ask for, and the place where it stands."""
    generator = torch.Generator().manual_seed(seed)
    keys = torch.rand(count, SYMBOLS, generator=generator).argsort(1)[:, :PAIRS]
    values = torch.randint(SYMBOLS, (count, PAIRS), generator=generator)
    lengths = torch.randint(2, PAIRS + 1, (count,), generator=generator)
    place = (torch.rand(count, generator=generator) * lengths).long()
    asked = keys.gather(1, place[:, None])[:, 0]
    return (keys, values, asked, torch.arange(PAIRS) < lengths[:, None]), place
