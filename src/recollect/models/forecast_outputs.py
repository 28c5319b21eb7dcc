"""What a forecast states about each value: a point, a Gaussian, or quantiles.

The raw outputs of a model end in an axis of Q numbers: one for a point; mean and log deviation of a Gaussian; one for
each of `LEVELS`. `quantiles` returns the same nine quantiles of all three, shifted by what calibration has found.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

Kind = Literal["point", "gaussian", "quantile"]
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
NUMBERS = {"point": 1, "gaussian": 2, "quantile": len(LEVELS)}
FLATTEST = 1e-3  # deviation of a window, in deviations of the training part
NARROWEST = -7.0  # log deviation: a Gaussian cannot collapse onto its training data


def place(kind: Kind, raw: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """Return raw outputs (…, C, Q) of a normalised series in the units of the series: y · scale + shift."""
    if kind != "gaussian":
        return raw * scale[..., None] + shift[..., None]
    mean, spread = raw.unbind(-1)
    return torch.stack([mean * scale + shift, spread + scale.log()], dim=-1)


def point(kind: Kind, raw: Tensor) -> Tensor:
    """Return one value for each forecast: the point, the mean, the median."""
    return raw[..., LEVELS.index(0.5)] if kind == "quantile" else raw[..., 0]


def quantiles(kind: Kind, raw: Tensor, offsets: Tensor | None = None, unit: Tensor | None = None) -> Tensor:
    """Return the quantiles (…, 9) of raw outputs (…, Q), in order; of a point, the point itself at every level.

    `offsets` (…, 9), found on held-out data and counted in `unit`, are added.
    """
    if kind == "quantile":
        found = raw
    elif kind == "point":
        found = raw.expand(*raw.shape[:-1], len(LEVELS))
    else:
        found = raw[..., :1] + raw[..., 1:].clamp(min=NARROWEST).exp() * _normal_quantiles(raw)
    if offsets is not None:
        found = found + (offsets if unit is None else offsets * unit)
    return found.sort(dim=-1).values


def unit_of(kind: Kind, raw: Tensor, window: Tensor) -> Tensor:
    """Return what offsets are counted in, (B, H or 1, C, 1): a Gaussian's deviation, else that of the window (B, L, C).

    Errors grow with the deviation of what was read, so an interval counted in it is narrow in calm times and wide in
    others (Lei et al. 2018, locally weighted conformal prediction).
    """
    if kind == "gaussian":
        return raw[..., 1:].clamp(min=NARROWEST).exp()
    return window.std(1, unbiased=False, keepdim=True)[..., None].clamp(min=FLATTEST)


def loss(kind: Kind, raw: Tensor, y: Tensor) -> Tensor:
    """Return the loss of each value (…): squared error, negative log likelihood, or the mean pinball loss."""
    if kind == "point":
        return (raw[..., 0] - y).square()
    if kind == "quantile":
        levels = torch.tensor(LEVELS, dtype=raw.dtype, device=raw.device)
        error = y[..., None] - raw
        return torch.maximum(levels * error, (levels - 1) * error).mean(-1)
    mean, spread = raw.unbind(-1)
    spread = spread.clamp(min=NARROWEST)
    return 0.5 * ((y - mean) / spread.exp()).square() + spread + 0.5 * math.log(2 * math.pi)


def _normal_quantiles(like: Tensor) -> Tensor:
    return torch.special.ndtri(torch.tensor(LEVELS, dtype=like.dtype, device=like.device))
