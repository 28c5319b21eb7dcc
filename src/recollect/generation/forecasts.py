"""Forecasts after the end of series, in the units of the data: as rows of a table, as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recollect.core.task import Answer, Prediction
from recollect.core.threads import pace
from recollect.data.error import DataError
from recollect.data.series.calendar_features import calendar_features
from recollect.data.series.series_data import SeriesFacts, facts_of, scaled_rows
from recollect.data.series.series_table import SeriesTable, TimeSeries
from recollect.data.series.time_stamps import Frequency, Instants
from recollect.generation.series_cells import cell, number
from recollect.models import forecast_outputs as outputs
from recollect.models.forecast_outputs import LEVELS
from recollect.models.forecasting import Forecaster

LOW, HIGH = LEVELS.index(0.1), LEVELS.index(0.9)  # of the 80 % interval


@dataclass(frozen=True)
class Forecast(Prediction):
    """The forecast of one series: points (H, C) and quantiles (H, C, 9) at stamps (H,), after the history it read.

    >>> run = rc.train("seasons", model="seasonal-naive", out=(folder := __import__("tempfile").mkdtemp() + "/run"))
    >>> forecast = run.predict("seasons")[0]
    >>> forecast.point.shape, forecast.rows()[0]["time"]
    ((24, 1), '2020-01')
    """

    channels: tuple[str, ...] = ()
    frequency: Frequency = field(default=Frequency("steps", 1))
    history: TimeSeries = field(default=TimeSeries("", np.zeros(0, np.int64), np.zeros((0, 0))))
    stamps: Instants = field(default_factory=lambda: np.zeros(0, np.int64))
    point: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)))
    quantiles: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0, 0)))

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each step and channel: time, value, and the ends of the 80 % interval."""
        return [
            {
                **({"series": self.source} if self.source else {}),
                "time": self.frequency.text(int(stamp)),
                "channel": channel,
                "forecast": float(self.point[step, place]),
                "low_80": float(self.quantiles[step, place, LOW]),
                "high_80": float(self.quantiles[step, place, HIGH]),
            }
            for step, stamp in enumerate(self.stamps)
            for place, channel in enumerate(self.channels)
        ]

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data, with every quantile."""
        rows = self.rows()
        for row, values in zip(rows, self.quantiles.reshape(len(rows), -1).tolist(), strict=True):
            row["quantiles"] = {f"{level:g}": value for level, value in zip(LEVELS, values, strict=True)}
        return {"series": self.source, "steps": rows}


def forecast_after(model: Forecaster, facts: SeriesFacts, table: SeriesTable) -> Iterator[Forecast]:
    """Yield the forecast of each series after its last row; the first one's text begins with the names of columns."""
    scales = facts_of(table, facts)
    lookback = model.config.lookback
    for one in table.series:
        if len(one.stamps) < lookback and not model.config.masked:
            name = f"series {one.name!r}" if one.name else "the series"
            short = f"{name} has {len(one.stamps)} rows, the model reads {lookback}"
            raise DataError(f"{table.source}: {short}; give more of its history")
    return _forecasts(model, scales, table)


@torch.no_grad()
def _forecasts(model: Forecaster, scales: SeriesFacts, table: SeriesTable) -> Iterator[Forecast]:
    rows = scaled_rows(table, scales)
    device = model.offsets.device
    lookback = model.config.lookback
    for place, one in enumerate(table.series):
        pace()
        mine = rows.series == place
        seen = None if rows.observed is None else rows.observed[mine]
        values, observed = _window(rows.values[mine], seen, lookback)
        ahead = table.frequency.after(int(one.stamps[-1]), model.config.horizon)
        marks = None
        if scales.calendar:
            all_stamps = np.concatenate([_stamps(one, table.frequency, lookback), ahead])
            marks = torch.from_numpy(calendar_features(all_stamps, table.frequency))[None].to(device)
        window = values[None].to(device)
        known = None if observed is None else observed[None].to(device)
        raw, _ = model.forecast(window, observed=known, calendar=marks)
        yield in_units(model, raw, window, scales, one, ahead, is_first=place == 0)


def _window(values: Tensor, observed: Tensor | None, rows: int) -> tuple[Tensor, Tensor | None]:
    """Return the last rows, and which values of them were observed; a series that is too short begins with zeros."""
    missing = rows - len(values)
    if missing <= 0:
        return values[-rows:], None if observed is None else observed[-rows:]
    observed = torch.ones_like(values, dtype=torch.bool) if observed is None else observed
    padding = values.new_zeros(missing, values.shape[1])
    return torch.cat([padding, values]), torch.cat([padding.bool(), observed])


def _stamps(one: TimeSeries, frequency: Frequency, rows: int) -> Instants:
    """Return the last stamps of a series; one that is too short has earlier ones before its first."""
    earlier = frequency.before(int(one.stamps[0]), max(rows - len(one.stamps), 0))
    return np.concatenate([earlier, one.stamps[-rows:]])


def in_units(
    model: Forecaster,
    raw: Tensor,
    window: Tensor,
    scales: SeriesFacts,
    one: TimeSeries,
    stamps: Instants,
    *,
    is_first: bool,
) -> Forecast:
    """Return the raw outputs (1, H, C, Q) of a series in the units of the data, as a table."""
    kind = model.config.kind
    mean, deviation = scales.scale(one.name)
    point = outputs.point(kind, raw)[0].double().cpu().numpy() * deviation + mean
    unit = outputs.unit_of(kind, raw, window)
    found = outputs.quantiles(kind, raw, model.offsets, unit)[0].double().cpu().numpy()
    quantiles = found * deviation[:, None] + mean[:, None]
    made = Forecast(one.name, [], scales.channels, scales.frequency, one, stamps, point, quantiles)
    return replace(made, targets=[Answer(as_csv(made.rows(), with_header=is_first), 0.0, 0.0)])


def as_csv(rows: Sequence[dict[str, Any]], *, with_header: bool) -> str:
    """Return rows as lines of a .csv, numbers with the digits that their interval tells."""
    head = [",".join(rows[0])] if with_header else []
    return "\n".join([*head, *map(_line, rows)])


def _line(row: dict[str, Any]) -> str:
    width = row["high_80"] - row["low_80"]
    return ",".join(number(v, width) if isinstance(v, float) else cell(str(v)) for v in row.values())
