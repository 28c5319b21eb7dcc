"""Normalisation of each window by its own mean and deviation, undone on the forecast."""

from __future__ import annotations

import torch
from torch import Tensor, nn

EPSILON = 1e-5


class ReversibleNorm(nn.Module):
    """Reversible instance normalisation (Kim et al. 2022): x′ = γ (x − μ) / √(σ² + ε) + β, and y = σ (y′ − β) / γ + μ.

    μ and σ are those of each window and channel and carry no gradient. kind="last" (Zeng et al. 2023) subtracts the
    window's last value and divides by nothing. Statistics are returned, not kept: the module holds only γ and β. Where
    we differ: missing values do not count in μ and σ.

    >>> norm = rc.ReversibleNorm(channels=1)
    >>> x = torch.tensor([[[1.0], [3.0]]])
    >>> normal, shift, scale = norm(x)
    >>> [round(v, 3) for v in normal.flatten().tolist()], shift.item(), round(scale.item(), 3)
    ([-1.0, 1.0], 2.0, 1.0)
    """

    def __init__(self, channels: int, kind: str = "instance", affine: bool = True) -> None:
        super().__init__()
        self.kind = kind
        is_affine = affine and kind == "instance"
        self.gain = nn.Parameter(torch.ones(channels)) if is_affine else None
        self.bias = nn.Parameter(torch.zeros(channels)) if is_affine else None

    def forward(self, values: Tensor, observed: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return normal values (N, L, C), and shift and scale (N, 1, C) that undo it: y = y′ · scale + shift."""
        shift, scale = self._statistics(values.detach(), observed)
        normal = (values - shift) / scale
        if observed is not None:
            normal = normal.masked_fill(~observed, 0.0)
        if self.gain is None or self.bias is None:
            return normal, shift, scale
        undone = scale / (self.gain + EPSILON * EPSILON)
        return normal * self.gain + self.bias, shift - self.bias * undone, undone

    def _statistics(self, values: Tensor, observed: Tensor | None) -> tuple[Tensor, Tensor]:
        if self.kind == "last":
            return values[:, -1:], torch.ones_like(values[:, -1:])
        if observed is None:
            mean = values.mean(1, keepdim=True)
            return mean, (values.var(1, keepdim=True, unbiased=False) + EPSILON).sqrt()
        count = observed.sum(1, keepdim=True).clamp(min=1)
        mean = values.masked_fill(~observed, 0.0).sum(1, keepdim=True) / count
        squares = (values - mean).masked_fill(~observed, 0.0).square().sum(1, keepdim=True) / count
        return mean, (squares + EPSILON).sqrt()
