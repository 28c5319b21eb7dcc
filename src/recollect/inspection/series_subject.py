"""Forecasters: which row of the window decided the forecast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from recollect.data.error import DataError
from recollect.inspection.subject import LONGEST, Subject, as_array, bytes_by_step
from recollect.inspection.trace import Array, Text
from recollect.models import forecast_outputs as outputs
from recollect.models.forecasting import Forecaster


class SeriesSubject(Subject):
    """A forecaster after one window of scaled values (L, C): outcome o is a step ahead, summed over the channels.

    A row is left out by setting its values to the window's mean: without a row, all others would shift.
    """

    kind: ClassVar[str] = "forecast"

    def __init__(
        self,
        model: Forecaster,
        window: Tensor,
        stamps: Sequence[str],
        ahead: Sequence[str],
        *,
        observed: Tensor | None = None,
        calendar: Tensor | None = None,
        scale: tuple[Array, Array] | None = None,
        explain: int = 3,
    ) -> None:
        if len(window) > 2 * LONGEST:
            raise DataError(f"series: got a window of {len(window)} rows, expected at most {2 * LONGEST} to be shown")
        self.model, self.inputs = model, window
        self.observed, self.calendar = observed, calendar
        none: tuple[Array, Array] = np.zeros(window.shape[1]), np.ones(window.shape[1])
        self.mean, self.deviation = scale or none
        self.tokens = list(stamps)
        last = model.config.horizon - 1
        self.steps = list(dict.fromkeys([0, last // 2, last]))[:explain]
        self.outcomes = [ahead[step] for step in self.steps]
        self.at = [len(self.tokens) - 1] * len(self.steps)

    @property
    def why_no_gradient(self) -> Text | None:
        """Naive forecasts are maps without weights, whose gradients exist."""
        return None

    def read(self) -> dict[str, Array]:
        """Return the forecast and what was read, in the units of the data."""
        points = as_array(self._points(self.inputs[None])[0])
        return {
            "values": as_array(self.inputs) * self.deviation + self.mean,
            "forecast": points * self.deviation + self.mean,
        }

    def values(self, inputs: Tensor, rows: Tensor, outcomes: Tensor, removed: Tensor | None = None) -> Tensor:
        """Return the forecasts of some steps, in deviations of the training part."""
        steps = torch.tensor(self.steps, device=inputs.device)[outcomes]
        return self._points(inputs).sum(2)[rows, steps]

    def without(self, which: Sequence[int]) -> Tensor:
        """Return a window for each of these rows, with the mean of the window in its place."""
        rows = self.inputs.repeat(len(which), 1, 1)
        rows[torch.arange(len(which)), torch.tensor(which)] = self.inputs.mean(0)
        return rows

    def _points(self, values: Tensor) -> Tensor:
        """Return forecasts (R, H, C) after windows (R, L, C)."""
        each = [None if t is None else t.expand(len(values), *t.shape) for t in (self.observed, self.calendar)]
        raw, _ = self.model.forecast(values, observed=each[0], calendar=each[1])
        return outputs.point(self.model.config.kind, raw)

    def beside(self) -> dict[str, Array]:
        """Return the bytes of the memory after every row; those of the window where it must be read whole."""
        observed = None if self.observed is None else self.observed[None]
        calendar = None if self.calendar is None else self.calendar[None]
        x = self.model.inputs(self.inputs[None], observed, calendar)
        if not self.model.streams:
            return {"memory.bytes": np.full(len(self.inputs), x.nbytes)}
        return {"memory.bytes": bytes_by_step(self.model, x[0])}
