"""Measures of forecasts, each by its published definition.

MSE    mean of (y − ŷ)²
MAE    mean of |y − ŷ|
MASE   MAE divided by mean |x_t − x_{t−m}| over the training part, m the season (Hyndman & Koehler 2006)
sMAPE  mean of 200 |y − ŷ| / (|y| + |ŷ|), in percent (Makridakis 1993, as in the M4 competition)
CRPS   2 × the mean pinball loss over quantile levels, which tends to ∫ (F(z) − 1{y ≤ z})² dz (Matheson & Winkler 1976)
coverage  the share of values inside an interval
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from recollect.core.task import Measure

FORECAST_MEASURES = {
    "mse": Measure("MSE", "mean squared error, in deviations of the training part"),
    "mae": Measure("MAE", "mean absolute error, in deviations of the training part"),
    "mase": Measure("MASE", "mean absolute error over that of the seasonal naive forecast in the training part"),
    "smape": Measure("sMAPE", "mean of 200 |y − ŷ| / (|y| + |ŷ|), in percent, in the units of the data"),
    "crps": Measure("CRPS", "twice the mean pinball loss of nine quantiles, in deviations of the training part"),
    "coverage": Measure(
        "coverage", "share of values inside the 80 % interval, which was calibrated on the validation part", False
    ),
}


def squared_error(y: Tensor, point: Tensor) -> Tensor:
    """Return (y − ŷ)² of each value."""
    return (y - point).square()


def absolute_error(y: Tensor, point: Tensor) -> Tensor:
    """Return |y − ŷ| of each value."""
    return (y - point).abs()


def symmetric_error(y: Tensor, point: Tensor) -> Tensor:
    """Return 200 |y − ŷ| / (|y| + |ŷ|) of each value; 0 where both are 0."""
    total = y.abs() + point.abs()
    return torch.where(total > 0, 200 * (y - point).abs() / total.clamp(min=1e-300), 0.0)


def pinball(y: Tensor, quantiles: Tensor, levels: Sequence[float]) -> Tensor:
    """Return max(q (y − z), (q − 1)(y − z)) of each value and level, (…, Q) (Koenker & Bassett 1978)."""
    rates = torch.tensor(levels, dtype=quantiles.dtype, device=quantiles.device)
    error = y[..., None] - quantiles
    return torch.maximum(rates * error, (rates - 1) * error)


def ranked_probability(y: Tensor, quantiles: Tensor, levels: Sequence[float]) -> Tensor:
    """Return the CRPS of each value: twice its mean pinball loss over the levels."""
    return 2 * pinball(y, quantiles, levels).mean(-1)


def is_covered(y: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return 1 where a value lies in its interval, ends included, else 0."""
    return ((y >= low) & (y <= high)).to(y.dtype)


def binomial_interval(share: float, count: float, z: float = 1.96) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share of `count` independent trials."""
    if count <= 0:
        return 0.0, 1.0
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return centre - half, centre + half
