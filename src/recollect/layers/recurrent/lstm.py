"""Long short-term memory: Hochreiter & Schmidhuber (1997) with the forget gate of Gers et al. (2000)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import _VF, Tensor
from typing_extensions import Unpack

from recollect.core.types import TensorOptions
from recollect.core.validate import fill_invalid
from recollect.layers.recurrent.recurrence import HiddenCell, Recurrence, last_valid, like_state, zero_memory

SHUT = -1e4  # a gate's logit at which the sigmoid is exactly 0, and at +1e4 exactly 1, in every dtype


class LSTM(Recurrence[HiddenCell]):
    """Long short-term memory (Hochreiter & Schmidhuber 1997; forget gate: Gers, Schmidhuber & Cummins 2000).

    i_t = σ(W_xi x_t + W_hi h_{t-1} + b_i)      c̃_t = tanh(W_xc x_t + W_hc h_{t-1} + b_c)
    f_t = σ(W_xf x_t + W_hf h_{t-1} + b_f)      c_t = f_t ⊙ c_{t-1} + i_t ⊙ c̃_t
    o_t = σ(W_xo x_t + W_ho h_{t-1} + b_o)      h_t = o_t ⊙ tanh c_t;  y_t = h_t

    The gates are in torch's order i, f, c̃, o. No peepholes. Where we differ from torch: b_f starts at
    `forget_bias` (default 1, after Jozefowicz et al. 2015), so that the cell is kept at first; without `bias`
    it has no effect.

    >>> layer = rc.LSTM(4, 8)
    >>> y, memory = layer(torch.randn(2, 5, 4))
    >>> tuple(y.shape), tuple(memory.hidden.shape), tuple(memory.cell.shape)
    ((2, 5, 8), (2, 8), (2, 8))
    """

    gates, kernel, remembers = 4, "lstm", HiddenCell

    def __init__(
        self, width: int, hidden: int, *, bias: bool = True, forget_bias: float = 1.0, **factory: Unpack[TensorOptions]
    ) -> None:
        self.forget_bias = forget_bias
        super().__init__(width, hidden, bias=bias, **factory)

    def reset_parameters(self) -> None:
        """Draw the weights as torch does, then set the forget gate's two biases to sum to `forget_bias`."""
        super().reset_parameters()
        if self.bias_ih is not None and self.bias_hh is not None:
            with torch.no_grad():
                forget = slice(self.hidden, 2 * self.hidden)
                self.bias_ih[forget] = self.forget_bias
                self.bias_hh[forget] = 0

    @zero_memory
    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> HiddenCell:
        """Return h_0 = c_0 = 0."""
        kind = self._like(like)
        hidden, cell = (torch.zeros(batch_size, self.hidden, **kind) for _ in range(2))
        return HiddenCell(hidden=hidden, cell=cell)

    def step(self, from_x: Tensor, memory: HiddenCell) -> tuple[HiddenCell, dict[str, Tensor]]:
        """Compute one step of the equations above."""
        total = from_x + F.linear(memory.hidden, self.weight_hh, self.bias_hh)  # (B, 4H)
        i, f, candidate, o = total.chunk(4, dim=1)
        i, f, candidate, o = i.sigmoid(), f.sigmoid(), candidate.tanh(), o.sigmoid()
        cell = f * memory.cell + i * candidate
        hidden = o * cell.tanh()
        inner = {
            "input_gate": i,
            "forget_gate": f,
            "candidate": candidate,
            "output_gate": o,
            "cell": cell,
            "hidden": hidden,
        }
        return HiddenCell(hidden=hidden, cell=cell), inner

    def fused_step(self, from_x: Tensor, memory: HiddenCell) -> HiddenCell:
        """Compute the gates and both new vectors in one kernel launch."""
        from_h = F.linear(memory.hidden, self.weight_hh, self.bias_hh)  # (B, 4H)
        c = memory.cell.contiguous()
        with torch.autocast("cuda", enabled=False):  # which would cast the state to reduced precision
            hidden, cell, _ = torch.ops.aten._thnn_fused_lstm_cell(like_state(from_x, c), like_state(from_h, c), c)
        return HiddenCell(hidden=hidden, cell=cell)

    def fused(self, x: Tensor, memory: HiddenCell, valid: Tensor | None) -> tuple[Tensor, HiddenCell] | None:
        """Read padding too, with gates that keep the cell there; h is gathered at each row's own last valid step."""
        weights = self._weights()
        if valid is not None:
            x, weights[0] = self._hold_cell(x, weights[0], valid)
        h = memory.hidden[None].contiguous()  # (1, B, H)
        c = h if memory.cell is memory.hidden else memory.cell[None].contiguous()
        y, h, c = self._run_fused(_VF.lstm, x, (h, c), weights)
        return y, HiddenCell(hidden=last_valid(y, memory.hidden, valid, h[0]), cell=c[0])

    def _hold_cell(self, x: Tensor, weight_ih: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """Add an input that is 1 at padding, where it closes the input gate and opens the forget gate.

        Kernels return c of the last step only, so it cannot be gathered as h is; kept at padding, the last c is right.
        """
        at_padding = fill_invalid(x.new_ones(*x.shape[:2], 1), ~valid)  # (B, T, 1)
        column = weight_ih.new_zeros(4, self.hidden, 1)
        column[0], column[1] = SHUT, -SHUT
        return torch.cat([x, at_padding], dim=2), torch.cat([weight_ih, column.flatten(0, 1)], dim=1)
