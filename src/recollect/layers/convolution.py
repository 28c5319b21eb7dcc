"""Short causal convolution over the last few steps."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from recollect.core.layer import SequenceLayer
from recollect.core.types import TensorOptions
from recollect.layers.ngram.recent import Recent


class Convolution(SequenceLayer[Recent]):
    """Causal depthwise convolution over the last `size` steps.

    y_t = Σ_{i=0}^{size−1} w_i ⊙ x_{t−i} + b

    Layers whose memory is a sum lose the order of the summands; a convolution before them shows them a step's
    neighbours (Fu et al. 2023, H3; Sun et al. 2024 before test-time training). Steps before the beginning are zero. It
    is initialised as the identity: w_0 = 1, all else 0.

    >>> layer = rc.Convolution(2, size=3)
    >>> layer(torch.tensor([[[1.0, 2.0]]]))[0].tolist()  # it starts as the identity
    [[[1.0, 2.0]]]
    """

    def __init__(self, width: int, size: int = 4, **factory: Unpack[TensorOptions]) -> None:
        super().__init__()
        if size < 1:
            raise ValueError(f"size: got {size}, expected at least 1, the step itself")
        self.width = self.width_out = width
        self.size = size
        self.weight = nn.Parameter(torch.zeros(size, width, **factory))  # w_0 last, beside the newest step
        self.bias = nn.Parameter(torch.zeros(width, **factory))
        with torch.no_grad():
            self.weight[-1] = 1

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> Recent:
        """Return zeros, and a length of 0."""
        options = self._like(like)
        last = torch.zeros(batch_size, self.size - 1, self.width or 0, **options)
        return Recent(last=last, length=torch.zeros(batch_size, dtype=torch.long, device=options["device"]))

    def read(self, x: Tensor, memory: Recent, valid: Tensor | None) -> tuple[Tensor, Recent]:
        """Sum shifted copies: faster than a library's convolution at these sizes."""
        joined, memory = memory.append(x, valid)  # (B, size − 1 + T, D)
        shifted = (joined[:, i : i + x.shape[1]] * self.weight[i] for i in range(self.size))
        return sum(shifted, start=self.bias), memory
