"""Forecasting as values arrive: one new observation in, the next forecast out of the memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from recollect.core.errors import ContractError
from recollect.core.memory import Memory
from recollect.data.series.series_data import SeriesFacts
from recollect.models import forecast_outputs as outputs
from recollect.models.forecasting import Forecaster


class ForecastStream:
    """A model that follows one series, in the units of the data: no value is read twice.

    `memory` is the model's; the last `lookback` values are kept beside it, only for the unit of the intervals.

    >>> folder = __import__("tempfile").mkdtemp() + "/run"
    >>> run = rc.train("sine", model="gru", horizon=4, lookback=8, budget="2steps", out=folder, width=8)
    >>> stream = rc.ForecastStream(run.model, run.assets["series"])
    >>> point, quantiles = stream.update([0.5])
    >>> point.shape, quantiles.shape  # 4 steps of 1 channel, 9 quantiles
    ((4, 1), (4, 1, 9))
    """

    def __init__(self, model: Forecaster, facts: SeriesFacts, series: str = "") -> None:
        if model.why_whole is not None:
            raise ContractError("model", "one that reads whole windows", f"one that streams: {model.why_whole}")
        if model.config.marks:
            raise ContractError("model", "one with calendar features", "one that reads values alone")
        self.model = model
        self.mean, self.deviation = facts.scale(series)
        self.memory: Memory | None = None
        self.recent: deque[torch.Tensor] = deque(maxlen=model.config.lookback)

    @torch.no_grad()
    def update(self, values: Sequence[float]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Read one value of each channel, NaN where it is missing; return points (H, C) and quantiles (H, C, 9)."""
        given = np.asarray(values, dtype=np.float64)
        if given.shape != self.mean.shape:
            raise ContractError("values", f"{given.size} values", f"{self.mean.size}, one a channel")
        missing = np.isnan(given)
        if missing.any() and not self.model.config.masked:
            raise ContractError("values", "a missing value", "numbers: the model was trained without missing values")
        last = self.recent[-1].numpy() if self.recent else np.zeros_like(given)
        scaled = torch.from_numpy(np.where(missing, last, (given - self.mean) / self.deviation))
        self.recent.append(scaled)
        x = scaled.to(self.model.offsets)[None, None]
        observed = torch.from_numpy(~missing)[None, None].to(x.device)
        raw, self.memory = self.model.forecast(x, self.memory, observed=observed)
        kind = self.model.config.kind
        window = torch.stack(list(self.recent)).to(raw)[None]
        found = outputs.quantiles(kind, raw, self.model.offsets, outputs.unit_of(kind, raw, window))[0]
        point = outputs.point(kind, raw)[0].double().cpu().numpy()
        levels = found.double().cpu().numpy()
        return point * self.deviation + self.mean, levels * self.deviation[:, None] + self.mean[:, None]
