"""The recurrent network of Elman (1990)."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import _VF, Tensor
from typing_extensions import Unpack

from recollect.core.types import TensorOptions
from recollect.layers.recurrent.recurrence import Hidden, Recurrence, last_valid, zero_memory


class RNN(Recurrence[Hidden]):
    """Elman's recurrent network (Elman 1990, "Finding structure in time").

    h_t = φ(W_xh x_t + b_xh + W_hh h_{t-1} + b_hh),  φ = tanh or relu;  y_t = h_t

    W_xh is `weight_ih`, W_hh `weight_hh`. Papers write one bias b_h; as in torch there are two, whose sum it is.

    >>> y, memory = rc.RNN(4, 8)(torch.randn(2, 5, 4))
    >>> torch.equal(y[:, -1], memory.hidden)
    True
    """

    gates = 1

    def __init__(
        self,
        width: int,
        hidden: int,
        *,
        nonlinearity: Literal["tanh", "relu"] = "tanh",
        bias: bool = True,
        **factory: Unpack[TensorOptions],
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"nonlinearity: got {nonlinearity!r}, expected 'tanh' or 'relu'")
        self.nonlinearity = nonlinearity
        self.kernel = f"rnn_{nonlinearity}"
        super().__init__(width, hidden, bias=bias, **factory)

    @zero_memory
    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> Hidden:
        """Return h_0 = 0."""
        return Hidden(hidden=torch.zeros(batch_size, self.hidden, **self._like(like)))

    def step(self, from_x: Tensor, memory: Hidden) -> tuple[Hidden, dict[str, Tensor]]:
        """Compute h_t = φ(W_xh x_t + b_xh + W_hh h_{t-1} + b_hh)."""
        total = from_x + F.linear(memory.hidden, self.weight_hh, self.bias_hh)  # (B, H)
        hidden = total.tanh() if self.nonlinearity == "tanh" else total.relu()
        return Hidden(hidden=hidden), {"hidden": hidden}

    def fused(self, x: Tensor, memory: Hidden, valid: Tensor | None) -> tuple[Tensor, Hidden] | None:
        """Read padding too: it comes last, so that each row's output at its last valid step is right."""
        kernel = _VF.rnn_tanh if self.nonlinearity == "tanh" else _VF.rnn_relu
        y, final = self._run_fused(kernel, x, memory.hidden[None].contiguous(), self._weights())
        return y, Hidden(hidden=last_valid(y, memory.hidden, valid, final[0]))
