"""Convolution to both sides: the filters of text classification."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import Unpack

from recollect.core.layer import SequenceLayer
from recollect.core.memory import Nothing
from recollect.core.types import TensorOptions


class Filters(SequenceLayer[Nothing]):
    """Filters of several sizes over each step and its neighbours to both sides (Kim 2014).

    y_t = relu(W_k [x_{t−l}; …; x_{t+r}] + b_k), l = ⌊(k − 1) / 2⌋, r = ⌊k / 2⌋, for every size k, concatenated

    Steps before the beginning and after the end are zero. With a maximum over all steps it is Kim's classifier. It
    looks ahead, so the sequence must be read in one call.

    >>> y, memory = rc.Filters(4, 9, sizes=(3, 4, 5))(torch.randn(2, 6, 4))
    >>> y.shape
    torch.Size([2, 6, 9])
    """

    growth = "none"

    def __init__(
        self, width: int, width_out: int, sizes: Sequence[int] = (3, 4, 5), **factory: Unpack[TensorOptions]
    ) -> None:
        super().__init__()
        if not sizes or min(sizes) < 1 or width_out < len(sizes):
            raise ValueError(f"sizes: got {tuple(sizes)} for {width_out} outputs, expected sizes of at least 1")
        self.width, self.width_out, self.sizes = width, width_out, tuple(sizes)
        counts = [width_out // len(sizes) + (i < width_out % len(sizes)) for i in range(len(sizes))]
        self.maps = nn.ModuleList(
            nn.Linear(size * width, count, **factory) for size, count in zip(sizes, counts, strict=True)
        )

    @property
    def streams(self) -> bool:
        """False: a filter looks ahead."""
        return False

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> Nothing:
        """Return the empty memory."""
        return Nothing()

    def read(self, x: Tensor, memory: Nothing, valid: Tensor | None) -> tuple[Tensor, Nothing]:
        """Apply each map to the windows of its size."""
        steps = x.shape[1]
        found = []
        for size, linear in zip(self.sizes, self.maps, strict=True):
            padded = F.pad(x, (0, 0, (size - 1) // 2, size // 2))  # (B, size − 1 + T, D)
            found.append(linear(torch.cat([padded[:, i : i + steps] for i in range(size)], dim=2)))
        return torch.cat(found, dim=2).relu(), memory
