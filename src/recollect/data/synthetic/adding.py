"""The adding problem: predict the sum of the two marked numbers of a long sequence."""

from __future__ import annotations

import torch
from torch import Tensor


def adding(count: int, length: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return x (B, T, 2), numbers and marks, and y (B,), the sum of the two marked numbers.

    Numbers are uniform in [0, 1); one mark is 1 in each half of the sequence. Always answering 1 has a mean squared
    error of 1/6. After Hochreiter & Schmidhuber 1997.
    """
    if length < 2:
        raise ValueError(f"length: got {length}, expected 2 or more: two numbers are added")
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.rand(count, length, generator=generator)  # (B, T)
    half = length // 2
    first = torch.randint(half, (count,), generator=generator)
    second = half + torch.randint(length - half, (count,), generator=generator)
    marks = torch.zeros(count, length).scatter_(1, torch.stack([first, second], 1), 1.0)  # (B, T)
    return torch.stack([numbers, marks], -1), (numbers * marks).sum(1)
