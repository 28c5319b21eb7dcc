"""The cross-entropy of a map to many symbols, without its logits ever being there as a whole.

    z = x Wᵀ + b,  ℓ = Σ_t (log Σ_v exp z_tv − Σ_v q_tv z_tv),  ∂ℓ/∂z = softmax(z) − q,
    q = (1 − ε) onehot(y) + ε / V

Logits of 2,000 steps over 10,000 words take 80 MB, and cross-entropy and its gradient as much again each. Here they are
computed for a few rows at a time, and their gradients at once, while they are in the cache; the backward pass keeps
tensors of the sizes of x and W. Many training libraries do the same under the name fused linear cross-entropy.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

FEWEST_SYMBOLS = 4096  # with fewer, whole logits are as fast
BYTES_AT_ONCE = 8 * 2**20  # of logits


def is_selected(model: nn.Module, x: Tensor) -> bool:
    """Return whether the loss of a model is computed by chunks: on a CPU, for many symbols, given features."""
    if x.device.type != "cpu" or torch.compiler.is_compiling() or not hasattr(model, "features"):
        return False  # a compiler fuses the loss itself
    head = getattr(model, "head", None)
    if type(head) is not nn.Linear or type(head.weight) is not nn.Parameter:  # sharded weights have another type
        return False
    return head.out_features >= FEWEST_SYMBOLS


def head_loss(head: nn.Linear, x: Tensor, y: Tensor, *, ignored: int, smoothing: float = 0.0) -> Tensor:
    """Return the summed cross-entropy () of targets y (N) given features x (N, D); `ignored` is the target of padding.

    It is `F.cross_entropy(head(x), y, ignore_index=ignored, label_smoothing=smoothing, reduction="sum")`.
    """
    dtype = torch.get_autocast_dtype(x.device.type) if torch.is_autocast_enabled(x.device.type) else x.dtype
    rows = max(1, BYTES_AT_ONCE // (4 * head.out_features))
    with torch.autocast(x.device.type, enabled=False):
        bias = None if head.bias is None else head.bias.to(dtype)
        total: Tensor = _HeadLoss.apply(  # type: ignore[no-untyped-call]
            x.to(dtype), head.weight.to(dtype), bias, y, ignored, smoothing, rows
        )
    return total


class _HeadLoss(torch.autograd.Function):
    """The loss and its gradients, a few rows at a time."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, y: Tensor, ignored: int, smoothing: float, rows: int
    ) -> Tensor:
        """Return the sum of the losses, and keep the gradients if any is required."""
        is_learned = any(ctx.needs_input_grad[:3])
        total = x.new_zeros((), dtype=torch.float32 if x.dtype in (torch.bfloat16, torch.float16) else x.dtype)
        dx = torch.empty_like(x) if is_learned else None
        dw = torch.zeros_like(weight, dtype=total.dtype) if is_learned else None
        db = None if bias is None else torch.zeros_like(bias, dtype=total.dtype)
        for start in range(0, len(x), rows):
            part = slice(start, start + rows)
            z = F.linear(x[part], weight, bias).to(total.dtype)  # (R, V)
            total += _into_gradient(z, y[part], ignored, smoothing)
            if dx is None or dw is None:
                continue
            dz = z.to(x.dtype)
            torch.mm(dz, weight, out=dx[part])
            if dw.dtype == dz.dtype:
                dw.addmm_(dz.t(), x[part])
            else:
                dw += dz.t() @ x[part]
            if db is not None:
                db += z.sum(0)
        ctx.save_for_backward(dx, dw, db)
        ctx.dtypes = weight.dtype, None if bias is None else bias.dtype
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Scale what is kept."""
        dx, dw, db = ctx.saved_tensors
        dtype, bias_dtype = ctx.dtypes
        of_bias = None if db is None else (db * gradient).to(bias_dtype)
        return (dx * gradient).to(dx.dtype), (dw * gradient).to(dtype), of_bias, None, None, None, None


def _into_gradient(z: Tensor, y: Tensor, ignored: int, smoothing: float) -> Tensor:
    """Return the summed loss () of logits (R, V), and replace them by its gradient."""
    is_real = y != ignored
    at = y.masked_fill(~is_real, 0)[:, None]
    normaliser = z.logsumexp(1)
    loss = normaliser - (1 - smoothing) * z.gather(1, at).squeeze(1)
    if smoothing:
        loss -= smoothing * z.mean(1)
    z.sub_(normaliser.masked_fill(~is_real, math.inf)[:, None]).exp_()  # (R, V), 0 where there is no target
    z.scatter_add_(1, at, ((smoothing - 1) * is_real.to(z.dtype))[:, None])
    if smoothing:
        z.sub_(smoothing / z.shape[1] * is_real.to(z.dtype)[:, None])
    return loss.masked_fill(~is_real, 0.0).sum()
