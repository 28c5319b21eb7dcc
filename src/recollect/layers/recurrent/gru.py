"""The gated recurrent unit of Cho et al. (2014)."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import _VF, Tensor
from typing_extensions import Unpack

from recollect.core.types import TensorOptions
from recollect.layers.recurrent.recurrence import Hidden, Recurrence, last_valid, like_state, zero_memory


class GRU(Recurrence[Hidden]):
    """Gated recurrent unit (Cho et al. 2014, arXiv 1406.1078).

    r_t = σ(W_xr x_t + b_xr + W_hr h_{t-1} + b_hr)
    z_t = σ(W_xz x_t + b_xz + W_hz h_{t-1} + b_hz)
    h̃_t = tanh(W_xh x_t + b_xh + W_hh (r_t ⊙ h_{t-1}) + b_hh)      reset="before": Cho's paper from v3 on
    h̃_t = tanh(W_xh x_t + b_xh + r_t ⊙ (W_hh h_{t-1} + b_hh))      reset="after": cuDNN's and torch's form
    h_t = z_t ⊙ h_{t-1} + (1 - z_t) ⊙ h̃_t;  y_t = h_t

    The two forms are different functions. The gates are in torch's order r, z, h̃. Only "after" has fused kernels.

    >>> layer = rc.GRU(4, 8)
    >>> y, memory = layer(torch.randn(2, 5, 4))
    >>> y, memory = layer(torch.randn(2, 1, 4), memory)  # one more step
    >>> tuple(y.shape), tuple(memory.hidden.shape)
    ((2, 1, 8), (2, 8))
    """

    gates = 3

    def __init__(
        self,
        width: int,
        hidden: int,
        *,
        reset: Literal["before", "after"] = "after",
        bias: bool = True,
        **factory: Unpack[TensorOptions],
    ) -> None:
        if reset not in ("before", "after"):
            raise ValueError(f"reset: got {reset!r}, expected 'before' or 'after'")
        self.reset = reset
        self.kernel = "gru" if reset == "after" else None
        super().__init__(width, hidden, bias=bias, **factory)

    @zero_memory
    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> Hidden:
        """Return h_0 = 0."""
        return Hidden(hidden=torch.zeros(batch_size, self.hidden, **self._like(like)))

    def step(self, from_x: Tensor, memory: Hidden) -> tuple[Hidden, dict[str, Tensor]]:
        """Compute one step of the equations above."""
        h = memory.hidden
        x_gates, x_candidate = from_x.split([2 * self.hidden, self.hidden], dim=1)
        w_gates, w_candidate = self.weight_hh.split([2 * self.hidden, self.hidden])
        b_gates, b_candidate = (
            (None, None) if self.bias_hh is None else self.bias_hh.split([2 * self.hidden, self.hidden])
        )
        r, z = (x_gates + F.linear(h, w_gates, b_gates)).sigmoid().chunk(2, dim=1)  # (B, H) each
        if self.reset == "before":
            from_h = F.linear(r * h, w_candidate, b_candidate)
        else:
            from_h = r * F.linear(h, w_candidate, b_candidate)
        candidate = (x_candidate + from_h).tanh()
        hidden = z * h + (1 - z) * candidate
        return Hidden(hidden=hidden), {
            "reset_gate": r,
            "update_gate": z,
            "candidate": candidate,
            "hidden": hidden,
        }

    def fused_step(self, from_x: Tensor, memory: Hidden) -> Hidden | None:
        """Compute the gates and the new state in one kernel launch."""
        if self.reset == "before":
            return None
        from_h = F.linear(memory.hidden, self.weight_hh, self.bias_hh)  # (B, 3H)
        h = memory.hidden.contiguous()
        with torch.autocast("cuda", enabled=False):  # which would cast the state to reduced precision
            hidden, _ = torch.ops.aten._thnn_fused_gru_cell(like_state(from_x, h), like_state(from_h, h), h)
        return Hidden(hidden=hidden)

    def fused(self, x: Tensor, memory: Hidden, valid: Tensor | None) -> tuple[Tensor, Hidden] | None:
        """Read padding too: it comes last, so that each row's output at its last valid step is right."""
        if self.reset == "before":
            return None
        y, final = self._run_fused(_VF.gru, x, memory.hidden[None].contiguous(), self._weights())
        return y, Hidden(hidden=last_valid(y, memory.hidden, valid, final[0]))
