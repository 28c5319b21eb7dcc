"""Forecasting as values arrive: one new observation in, the next forecast out."""

from __future__ import annotations

import warnings
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
from recollect.models.language import RECURRENT


class ForecastStream:
    """A model that follows one series, in the units of the data.

    Models are trained on windows of `lookback` rows. Recurrent ones and maps of a window carry their memory on: no
    value is read twice, and forecasts are as good after any number of rows. Attention and TTT were never trained on
    the memory of more rows, and their forecasts get worse there; by default they read the last `lookback` rows again
    at each update, and forecast as `evaluate` has measured. carry=True carries the memory of these, too.

    >>> folder = __import__("tempfile").mkdtemp() + "/run"
    >>> run = rc.train("sine", model="gru", horizon=4, lookback=8, budget="2steps", out=folder, width=8)
    >>> stream = rc.ForecastStream(run.model, run.assets["series"])
    >>> point, quantiles = stream.update([0.5])
    >>> point.shape, quantiles.shape  # 4 steps of 1 channel, 9 quantiles
    ((4, 1), (4, 1, 9))
    """

    def __init__(self, model: Forecaster, facts: SeriesFacts, series: str = "", *, carry: bool | None = None) -> None:
        if model.why_whole is not None:
            raise ContractError("model", "one that reads whole windows", f"one that streams: {model.why_whole}")
        if model.config.marks:
            raise ContractError("model", "one with calendar features", "one that reads values alone")
        self.model = model
        self.mean, self.deviation = facts.scale(series)
        is_safe = model.config.is_window or model.config.family in RECURRENT
        self.carries = is_safe if carry is None else carry
        self.is_degraded = self.carries and not is_safe  # once more rows than a window were read
        self.memory: Memory | None = None
        self.read = 0  # rows
        self.recent: deque[torch.Tensor] = deque(maxlen=model.config.lookback)  # scaled
        self.observed: deque[torch.Tensor] = deque(maxlen=model.config.lookback)

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
        self.observed.append(torch.from_numpy(~missing))
        self.read += 1
        window = torch.stack(list(self.recent)).to(self.model.offsets)[None]  # (1, up to L, C)
        raw = self._forecast(window)
        kind = self.model.config.kind
        found = outputs.quantiles(kind, raw, self.model.offsets, outputs.unit_of(kind, raw, window))[0]
        point = outputs.point(kind, raw)[0].double().cpu().numpy()
        levels = found.double().cpu().numpy()
        return point * self.deviation + self.mean, levels * self.deviation[:, None] + self.mean[:, None]

    def _forecast(self, window: torch.Tensor) -> torch.Tensor:
        """Return the raw outputs after the newest row: out of the memory, or of the window read again."""
        observed = torch.stack(list(self.observed)).to(window.device)[None]
        if not self.carries:
            raw, self.memory = self.model.forecast(window, observed=observed)
            return raw
        if self.is_degraded and self.read == self.model.config.lookback + 1:
            family = self.model.config.family
            trained = f"{family} was trained on windows of {self.model.config.lookback} rows and has read more: its "
            warnings.warn(f"{trained}forecasts get worse; leave out carry=True", UserWarning, stacklevel=3)
        raw, self.memory = self.model.forecast(window[:, -1:], self.memory, observed=observed[:, -1:])
        return raw
