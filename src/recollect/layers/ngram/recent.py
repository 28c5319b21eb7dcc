"""The memory of models that read the last few symbols."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from typing_extensions import Self

from recollect.core.memory import Memory


@dataclass(frozen=True, eq=False, kw_only=True)
class Recent(Memory):
    """The last `order` inputs, the newest at the end, and how many steps were read.

    >>> _, memory = rc.Markov(10, order=2)(torch.tensor([[4, 5, 6]]))
    >>> memory.last.tolist(), memory.length.tolist()
    ([[5, 6]], [3])
    """

    last: Tensor  # (B, order, …)
    length: Tensor  # (B,)

    def append(self, new: Tensor, valid: Tensor | None) -> tuple[Tensor, Self]:
        """Return remembered and new inputs (B, order + T, …), and the memory of each row's last ones."""
        order, steps = self.last.shape[1], new.shape[1]
        joined = torch.cat([self.last, new], dim=1)  # (B, order + T, …)
        if valid is None:
            return joined, replace(self, last=joined[:, steps:].clone(), length=self.length + steps)
        count = valid.sum(1)
        index = count[:, None] + torch.arange(order, device=new.device)  # (B, order)
        index = index.reshape(*index.shape, *[1] * (new.dim() - 2)).expand(-1, -1, *new.shape[2:])
        return joined, replace(self, last=joined.gather(1, index), length=self.length + count)
