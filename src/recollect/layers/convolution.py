"""Short convolution: each step beside the few before it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from recollect.core.layer import SequenceLayer
from recollect.layers.ngram.recent import Recent


class Convolution(SequenceLayer[Recent]):
    """Causal convolution over the last `size` steps, each channel by itself.

    y_t = Σ_{i=0}^{size−1} w_i ⊙ x_{t−i} + b

    Layers whose memory is a sum forget the order of what they summed; this shows them a step's neighbours (Fu et al.
    2023, H3; Sun et al. 2024 before test-time training). What lies before the beginning is zero. It starts as the
    identity: w_0 = 1, all else 0.

    >>> layer = rc.Convolution(2, size=3)
    >>> layer(torch.tensor([[[1.0, 2.0]]]))[0].tolist()  # it starts as the identity
    [[[1.0, 2.0]]]
    """

    def __init__(self, width: int, size: int = 4, **factory: Any) -> None:
        super().__init__()
        if size < 1:
            raise ValueError(f"size: got {size}, expected at least 1, the step itself")
        self.width, self.width_out, self.size = width, width, size
        self.weight = nn.Parameter(torch.zeros(size, width, **factory))  # w_0 last, beside the newest step
        self.bias = nn.Parameter(torch.zeros(width, **factory))
        with torch.no_grad():
            self.weight[-1] = 1

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> Recent:
        """Begin with zeros, and no step read."""
        options = self._like(like)
        last = torch.zeros(batch_size, self.size - 1, self.width or 0, **options)
        return Recent(last=last, length=torch.zeros(batch_size, dtype=torch.long, device=options["device"]))

    def read(self, x: Tensor, memory: Recent, valid: Tensor | None) -> tuple[Tensor, Recent]:
        """Add up shifted copies: cheaper than a library's convolution at these sizes."""
        joined, memory = memory.append(x, valid)  # (B, size − 1 + T, D)
        shifted = (joined[:, i : i + x.shape[1]] * self.weight[i] for i in range(self.size))
        return sum(shifted, start=self.bias), memory
