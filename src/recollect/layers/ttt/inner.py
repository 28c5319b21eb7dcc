"""The parts of an inner model with explicit gradients: autograd computes the outer ones."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

EPSILON = 1e-6


def gelu(x: Tensor) -> Tensor:
    """Return ½ x (1 + tanh(√(2/π) (x + 0.044715 x³)))."""
    return F.gelu(x, approximate="tanh")


def gelu_slope(x: Tensor) -> Tensor:
    """Return the derivative of `gelu`."""
    c = math.sqrt(2 / math.pi)
    t = torch.tanh(c * (x + 0.044715 * x**3))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x)


def standardised(z: Tensor) -> tuple[Tensor, Tensor]:
    """Return ẑ = (z − mean) / √(variance + ε) over the last axis, and that root."""
    centred = z - z.mean(-1, keepdim=True)
    spread = (centred.square().mean(-1, keepdim=True) + EPSILON).sqrt()
    return centred / spread, spread


def standardised_gradient(z_hat: Tensor, spread: Tensor, g: Tensor) -> Tensor:
    """Return ∂L/∂z from g = ∂L/∂ẑ: (g − mean g − ẑ · mean(g ẑ)) / √(variance + ε)."""
    return (g - g.mean(-1, keepdim=True) - z_hat * (g * z_hat).mean(-1, keepdim=True)) / spread


def with_one(u: Tensor) -> Tensor:
    """Return u with a last column of ones: the input of a bias."""
    return F.pad(u, (0, 1), value=1.0)
