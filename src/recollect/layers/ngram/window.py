"""The neural window model: the last few inputs through a small network."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from recollect.core.layer import SequenceLayer
from recollect.core.record import note
from recollect.core.types import TensorOptions
from recollect.layers.ngram.recent import Recent


class Window(SequenceLayer[Recent]):
    """Neural autoregressive model of order τ (Bengio et al. 2003).

    y_t = W_2 relu(W_1 [x_{t-τ+1}; …; x_t] + b_1) + b_2

    Inputs before the beginning are zero. `order` τ is the number of inputs read; at order 0 y is a constant.

    >>> layer = rc.Window(4, order=3)
    >>> y, memory = layer(torch.randn(1, 5, 4))
    >>> tuple(y.shape), tuple(memory.last.shape)
    ((1, 5, 4), (1, 3, 4))
    """

    def __init__(
        self,
        width: int,
        order: int,
        *,
        hidden: int | None = None,
        width_out: int | None = None,
        **factory: Unpack[TensorOptions],
    ) -> None:
        super().__init__()
        if order < 0:
            raise ValueError(f"order: got {order}, expected 0 or more remembered inputs")
        self.width, self.order, self.hidden = width, order, hidden or 4 * width
        self.width_out = width_out or width
        # A matrix without columns adds nothing, and torch warns when it initialises one.
        self.first = nn.Linear(order * width, self.hidden, **factory) if order else None
        self.constant = None if order else nn.Parameter(torch.zeros(self.hidden, **factory))
        self.second = nn.Linear(self.hidden, self.width_out, **factory)

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> Recent:
        """Return a memory of zeros, with no step read."""
        options = self._like(like)
        last = torch.zeros(batch_size, self.order, self.width or 0, **options)
        return Recent(last=last, length=torch.zeros(batch_size, dtype=torch.long, device=options["device"]))

    def read(self, x: Tensor, memory: Recent, valid: Tensor | None) -> tuple[Tensor, Recent]:
        """Concatenate the last τ inputs of every step, and apply the network to each window."""
        joined, memory = memory.append(x, valid)
        steps = x.shape[1]
        windows = [joined[:, i + 1 : i + 1 + steps] for i in range(self.order)]  # the i-th oldest input of every step
        if self.first is not None:
            first = self.first(torch.cat(windows, dim=2))
        else:
            assert self.constant is not None
            first = self.constant.expand(*x.shape[:2], -1)
        hidden = first.relu()  # (B, T, hidden)
        note(self, hidden=hidden)
        return self.second(hidden), memory
