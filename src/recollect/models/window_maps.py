"""From a window of a series to the values after it: linear maps, a small network, and forecasts without parameters.

Each is called as `map(window)` with (N, L, F), the newest step last and the value itself in feature 0, and returns
(N, out), the outputs of `horizon` steps ahead. The mathematics of a family is here and nothing else: channels,
normalisation and memory are the Forecaster's.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

KERNEL = 25  # of DLinear's moving average, as published


class LinearMap(nn.Module):
    """A linear map from the whole window to all outputs: autoregression (Yule 1927), directly to every step ahead.

    With the last value subtracted before and added after it is NLinear (Zeng et al. 2023).
    """

    def __init__(self, lookback: int, features: int, out: int) -> None:
        super().__init__()
        self.linear = nn.Linear(lookback * features, out)

    def forward(self, window: Tensor) -> Tensor:
        """Return W [x_{t−L+1}; …; x_t] + b."""
        return self.linear(window.flatten(1))


class DecompositionMap(nn.Module):
    """DLinear (Zeng et al. 2023): linear maps of the moving average and of what remains, added.

    The average is over 25 steps, the ends repeated. Only the values are read, no other feature.
    """

    def __init__(self, lookback: int, out: int) -> None:
        super().__init__()
        self.seasonal = nn.Linear(lookback, out)
        self.trend = nn.Linear(lookback, out)

    def forward(self, window: Tensor) -> Tensor:
        """Return W_s (x − average) + W_t average + b."""
        values = window[..., 0]  # (N, L)
        trend = moving_average(values)
        return self.seasonal(values - trend) + self.trend(trend)


def moving_average(values: Tensor) -> Tensor:
    """Return the centred moving average (N, L) over 25 steps; the first and last value are repeated at the ends."""
    side = (KERNEL - 1) // 2
    padded = F.pad(values[:, None], (side, side), mode="replicate")  # (N, 1, L + 24)
    return F.avg_pool1d(padded, KERNEL, stride=1)[:, 0]


class NetworkMap(nn.Module):
    """Two layers over the window: W_2 relu(W_1 [x_{t−L+1}; …; x_t] + b_1) + b_2 (Bengio et al. 2003 for values)."""

    def __init__(self, lookback: int, features: int, out: int, hidden: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.first = nn.Linear(lookback * features, hidden)
        self.second = nn.Linear(hidden, out)
        self.dropout = dropout

    def forward(self, window: Tensor) -> Tensor:
        """Return the network's outputs."""
        hidden = self.first(window.flatten(1)).relu()
        return self.second(F.dropout(hidden, self.dropout, self.training))


class LastValue(nn.Module):
    """The naive forecast: the last value for ever."""

    def __init__(self, horizon: int, season: int = 1) -> None:
        super().__init__()
        self.horizon = horizon

    def forward(self, window: Tensor) -> Tensor:
        """Return x_t for every step ahead."""
        return window[:, -1, :1].expand(-1, self.horizon)


class LastSeason(nn.Module):
    """The seasonal naive forecast: the value one season before, x̂_{t+h} = x_{t+h−m}, repeated.

    A window shorter than a season repeats what it has.
    """

    def __init__(self, horizon: int, season: int = 1) -> None:
        super().__init__()
        self.horizon = horizon
        self.season = season

    def forward(self, window: Tensor) -> Tensor:
        """Return the last season, repeated."""
        last = window[:, -min(self.season, window.shape[1]) :, 0]  # (N, m)
        index = torch.arange(self.horizon, device=window.device) % last.shape[1]
        return last[:, index]


class Drift(nn.Module):
    """The line through the window's first and last value, extended (Hyndman & Athanasopoulos, 5.2)."""

    def __init__(self, horizon: int, season: int = 1) -> None:
        super().__init__()
        self.horizon = horizon

    def forward(self, window: Tensor) -> Tensor:
        """Return x_t + h (x_t − x_1) / (L − 1)."""
        values = window[..., 0]
        slope = (values[:, -1:] - values[:, :1]) / max(window.shape[1] - 1, 1)
        return values[:, -1:] + slope * torch.arange(1, self.horizon + 1, device=window.device)


NAIVE: dict[str, type[LastValue] | type[LastSeason] | type[Drift]] = {
    "naive": LastValue,
    "seasonal-naive": LastSeason,
    "drift": Drift,
}
