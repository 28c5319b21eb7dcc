"""RNN, GRU and LSTM on a CPU, by a kernel in C that walks through time; forwards and backwards.

torch reads RNN and GRU step by step: every step's product reads the weights as they lie, every step adds its own share
to their gradients, and every operation on the way has its price. Here the recurrent product has weights laid out for
it, a step is one pass, and each thread walks through the whole sequence with its own rows, so that none waits. All that
does not hang on the step before is a large product of torch's, before the walk or after it.

The readable form is the layer's own `read`. See docs/decisions/0013-cpu-recurrences.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from recollect.kernels.recurrence_walk import KINDS, Walk, library_for


class Weights(NamedTuple):
    """A layer's own, in torch's layout."""

    ih: Tensor  # (G·H, D)
    hh: Tensor  # (G·H, H)
    bias_ih: Tensor | None
    bias_hh: Tensor | None


def read(
    kind: str, x: Tensor, first: tuple[Tensor, ...], weights: Weights, valid: Tensor | None
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Read x (B, T, D) from h, or (h, c): all outputs (B, T, H), and the last state."""
    lengths = torch.full((len(x),), x.shape[1]) if valid is None else valid.sum(1)
    cell = first[1] if len(first) > 1 else None
    y, *last = _Recurrence.apply(kind, lengths, x, first[0], cell, *weights)  # type: ignore[no-untyped-call]
    return y, tuple(last[: len(first)])


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        kind: str,
        lengths: Tensor,
        x: Tensor,
        h: Tensor,
        c: Tensor | None,
        w_ih: Tensor,
        w_hh: Tensor,
        b_ih: Tensor | None,
        b_hh: Tensor | None,
    ) -> tuple[Tensor | None, ...]:
        is_kept = any(ctx.needs_input_grad)
        gates = F.linear(x, w_ih, b_ih)  # (B, T, G·H)
        walk = Walk(kind, lengths, h, c, gates)
        y, inner, *last = walk.forwards(w_hh, b_hh, is_kept)
        if is_kept:
            ctx.kind = kind
            ctx.save_for_backward(lengths, x, h, c, w_ih, w_hh, gates, y, inner)
        return y, *last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor, dh: Tensor, dc: Tensor | None) -> tuple[Tensor | None, ...]:
        lengths, x, h, c, w_ih, w_hh, gates, y, inner = ctx.saved_tensors
        walk = Walk(ctx.kind, lengths, h, c, gates)
        d_gates, d_inner, d_first, d_cell = walk.backwards(w_hh, y, inner, dy, dh, dc)
        wants = ctx.needs_input_grad[5:]
        before = torch.cat([h[:, None], y[:, :-1]], dim=1).flatten(0, 1)  # (B·T, H)
        flat = d_gates.flatten(0, 1)  # (B·T, G·H)
        dx = (flat @ w_ih).view(x.shape) if ctx.needs_input_grad[2] else None
        dw_ih = flat.t() @ x.reshape(len(flat), -1) if wants[0] else None
        parts = [flat] if d_inner is None else [flat[:, : 2 * h.shape[1]], d_inner.flatten(0, 1)]
        dw_hh = torch.cat([part.t() @ before for part in parts]) if wants[1] else None
        db_ih = flat.sum(0) if wants[2] else None
        db_hh = torch.cat([part.sum(0) for part in parts]) if wants[3] else None
        return None, None, dx, d_first, d_cell, dw_ih, dw_hh, db_ih, db_hh
