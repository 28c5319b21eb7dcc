"""Forecasting: the next values of a series, or of many channels and series, from those before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from recollect.core.memory import Memory
from recollect.core.settings import CheckedSettings, SettingError, setting
from recollect.core.task import Assets, Baseline, Batches, ItemScores, Loss, Scores
from recollect.core.types import JsonMapping, JsonObject
from recollect.data.series.series_data import SeriesData, SeriesFacts, load_series
from recollect.data.series.series_table import GAPS, SeriesTable
from recollect.data.series.window_sizes import window_sizes
from recollect.data.series.windows import WindowBatch, WindowBatches
from recollect.evaluation.forecast_metrics import FORECAST_MEASURES, binomial_interval
from recollect.evaluation.linear_forecasts import baseline_rows
from recollect.evaluation.rolling_origin import calibrate, deciding_error, predictor, roll, window_items
from recollect.generation.forecasts import Forecast, forecast_after
from recollect.models import forecast_outputs as outputs
from recollect.models.forecast_config import FORECASTERS, KINDS, ForecastConfig, forecast_settings
from recollect.models.forecasting import Forecaster
from recollect.models.language import BLOCKS
from recollect.models.window_maps import NAIVE
from recollect.tasks.series_task import SeriesTask
from recollect.views.forecast_plot import forecast_page, forecast_svg

SIZES = {"tiny": (64, 1), "small": (128, 2), "base": (256, 3)}  # width, and layers of a recurrent model
VALUES_ALONE = (*NAIVE, "dlinear")  # families without other inputs
SHOWN = 6  # values in a line of a sample


@dataclass(frozen=True)
class ForecastOptions(CheckedSettings):
    """Settings of a forecasting run."""

    target: str | None = setting(None, help="the columns to forecast, commas between; by default all numbers")
    horizon: int | None = setting(None, least=1, help="steps to forecast; by default 24, fewer of short series")
    lookback: int | None = setting(None, least=1, help="steps that are read; by default 96, fewer of short series")
    time: str | None = setting(
        None, help="the column of time stamps, none to count rows; by default found by name or dates"
    )
    series: str | None = setting(None, help="the column that tells many series in one file apart")
    split: str = setting("0.7,0.1,0.2", help="train, valid and test by time: shares or numbers of rows")
    gaps: str = setting("refuse", choices=GAPS, help="missing rows: refuse them, or read them as missing values")
    season: int | None = setting(None, least=1, help="steps of a season; by default that of the frequency")
    calendar: bool = setting(False, help="also read hour, weekday and day of the year")
    ahead: str = setting("direct", choices=("direct", "free"), help="all steps at once, or one, fed back")
    output: str = setting("point", choices=KINDS, help="what is predicted of a value; intervals are calibrated for all")
    batch_size: int = setting(32, least=1, help="windows in a batch")


class ForecastTask(SeriesTask):
    """Predict the values after a window of a series."""

    name: ClassVar[str] = "forecast"
    Options: ClassVar[type] = ForecastOptions
    families: ClassVar[tuple[str, ...]] = FORECASTERS
    Config: ClassVar[type] = ForecastConfig
    default_model: ClassVar[str] = "nlinear"  # a linear map is hard to beat with nothing chosen
    takes_layers: ClassVar[bool] = True
    noun: ClassVar[Mapping[str, str]] = {"en": "A forecaster", "zh": "时间序列预测模型"}
    options: ForecastOptions

    def __init__(self, options: ForecastOptions | None = None) -> None:
        self.options = options or ForecastOptions()

    def windows_of(self, table: SeriesTable, facts: SeriesFacts | None) -> SeriesData:
        """Return windows of `lookback` rows to read and `horizon` rows to predict."""
        options = self.options
        names = ("split", "season", "calendar")
        shape: dict[str, Any] = {name: getattr(options, name) for name in names}
        if facts is not None and facts.horizon:
            return load_series(table, facts, lookback=facts.lookback, horizon=facts.horizon, **shape)
        season = options.season or table.frequency.season
        horizon, lookback = window_sizes(table, options.split, season, options.horizon, options.lookback)
        return load_series(table, facts, lookback=lookback, horizon=horizon, **shape)

    def reopen(self, name: str) -> None:
        """Return None: nothing is cached, and the table is read again."""
        return

    @staticmethod
    def settings(family: str) -> tuple[str, ...]:
        """Return the names of the model settings that a family uses."""
        return forecast_settings(family)

    def config(self, family: str, size: str, dataset: SeriesData, settings: JsonMapping) -> ForecastConfig:
        """Return a family's config; the size decides width and layers, blocks have one layer more."""
        if self.options.calendar and family in VALUES_ALONE:
            raise SettingError(
                f"calendar: {family} reads values alone; leave it out, or train another family: -m linear"
            )
        width, layers = SIZES[size]
        chosen = {"width": width, "layers": layers + (family in BLOCKS)} | dict(settings)
        shared: dict[str, Any] = {name: getattr(dataset.train, name) for name in ("lookback", "horizon")}
        shared |= {name: getattr(self.options, name) for name in ("ahead", "output")}
        rows = dataset.rows
        marks = 0 if rows.calendar is None else rows.calendar.shape[1]
        shared |= {"season": dataset.facts.season, "masked": rows.observed is not None, "marks": marks}
        return ForecastConfig(family, rows.values.shape[1], **shared, **chosen)

    def build(self, config: JsonMapping) -> Forecaster:
        """Return a model with new weights."""
        return Forecaster(ForecastConfig(**config))

    def batches(self, dataset: SeriesData, model: Forecaster, seed: int) -> Batches:
        """Return batches of windows of the training part, in random order."""
        return WindowBatches(dataset.train, self.options.batch_size, seed)

    def fit(self, model: Forecaster, dataset: SeriesData, limit: int | None = None) -> int:
        """Return the number of windows: naive forecasts have nothing to fit."""
        return min(len(dataset.train), limit or len(dataset.train))

    def loss(self, model: Forecaster, batch: WindowBatch, memory: Memory | None) -> Loss:
        """Return the loss of a batch: of the steps ahead, or (ahead=free) of the next value after every step."""
        kind = model.config.kind
        if model.config.ahead == "free":
            return _one_step_loss(model, batch)
        raw, _ = model.forecast(batch.x, observed=batch.observed, calendar=batch.calendar)
        return _summed(outputs.loss(kind, raw, batch.y), batch.known)

    def measure(self, model: Forecaster, dataset: SeriesData, split: str, limit: int | None = None) -> Scores:
        """Return the error over all windows of a part; the validation part also calibrates the model's intervals."""
        was_training = model.training
        model.eval()
        if split == "valid":
            calibrate(model, dataset, limit)
        found = deciding_error(model, dataset, split, limit)
        model.train(was_training)
        decisive = deciding(model)
        return Scores({decisive: FORECAST_MEASURES[decisive]}, {"rolling origin": {decisive: found}})

    def item_scores(self, model: Forecaster, dataset: SeriesData, split: str) -> ItemScores:
        """Return the error of `measure` by neighbouring windows, and by steps ahead."""
        was_training = model.training
        found = window_items(predictor(model.eval()), dataset, split, deciding(model))
        model.train(was_training)
        return found

    def evaluate(self, model: Forecaster, dataset: SeriesData, assets: Assets, steps: int | None = None) -> Scores:
        """Return every measure over all windows of the test part, and those of the baselines."""
        own = roll(predictor(model.eval()), dataset, "test", steps)
        rows = {model.config.family.rpartition(":")[2]: own} | {
            f"({name})": row for name, row in baseline_rows(dataset).items()
        }
        values = sum(batch.count for batch in dataset.test.in_order(1024, steps))
        windows = min(len(dataset.test), steps or len(dataset.test))
        apart = max(windows / dataset.test.horizon, 1.0)  # neighbouring windows share most of their values
        low, high = binomial_interval(own["coverage"], apart)
        details: JsonObject = {"windows": windows, "values": values, "windows_apart": apart}
        note = "coverage of the model: 95 % binomial interval {:.3f} to {:.3f}, of {:.3g} windows that do not overlap"
        details |= {"coverage_interval": [low, high], "signatures": [note.format(low, high, apart)]}
        return Scores(FORECAST_MEASURES, rows, details)

    def predict(self, model: Forecaster, assets: Assets, inputs: str) -> Iterator[Forecast]:
        """Return the forecast after the last row of each series of a table."""
        return forecast_after(model, assets["series"], self.table_of(inputs))

    def plot(self, predictions: Sequence[Forecast], title: str, *, is_page: bool) -> str:
        """Return a drawing of forecasts with their intervals: a page, or one SVG."""
        return forecast_page(predictions, title) if is_page else forecast_svg(predictions, title)

    def baselines(self, dataset: SeriesData) -> list[Baseline]:
        """Return the errors of naive forecasts and of linear maps fitted in closed form."""
        return [Baseline(name, row["mse"]) for name, row in baseline_rows(dataset).items()]

    def sample(self, model: Forecaster, dataset: SeriesData) -> tuple[str, str]:
        """Return the source, and of the first window of the validation part the last values and their forecast."""
        batch = dataset.valid.gather(np.zeros(1, dtype=np.int64))
        was_training = model.training
        point, _ = predictor(model.eval())(batch)
        model.train(was_training)
        mean, deviation = dataset.facts.scale(dataset.table.series[int(batch.series[0])].name)
        before = (batch.x[0, -SHOWN:, 0] * deviation[0] + mean[0]).tolist()
        after = (point[0, :SHOWN, 0] * deviation[0] + mean[0]).tolist()
        lines = [" ".join(f"{value:.4g}" for value in values) for values in (before, after)]
        return dataset.table.source, ": " + " → ".join(lines)

    def bytes_held(self, dataset: SeriesData, model: Forecaster) -> dict[int, int]:
        """Return the bytes of one row's memory after a window."""
        return {dataset.train.lookback: _bytes(model, dataset.train.lookback)}


def deciding(model: Forecaster) -> str:
    """Return the name of the measure that decides which weights are best."""
    return "mse" if model.config.kind == "point" else "crps"


def _one_step_loss(model: Forecaster, batch: WindowBatch) -> Loss:
    """Return the loss of the next value after every step of the window and its horizon.

    A family of windows begins where its window is full: before, it would learn from zeros that never were values.
    """
    values = torch.cat([batch.x, batch.y], dim=1)  # (B, L + H, C)
    observed = None
    if batch.observed is not None and batch.known is not None:
        observed = torch.cat([batch.observed, batch.known], dim=1)
    x = model.inputs(values, observed, batch.calendar)[:, :-1]
    raw = model(x)[0].unflatten(2, (-1, model.numbers))  # (B, L + H − 1, C, Q)
    first = min(model.config.reach, x.shape[1]) - 1 if model.config.is_window else 0
    known = None if observed is None else observed[:, first + 1 :]
    return _summed(outputs.loss(model.config.kind, raw[:, first:], values[:, first + 1 :]), known)


def _summed(losses: Tensor, known: Tensor | None) -> Loss:
    if known is None:
        return Loss(losses.sum(), losses.numel())
    return Loss(losses.masked_fill(~known, 0.0).sum(), known.sum().clamp(min=1))


@torch.no_grad()
def _bytes(model: Forecaster, lookback: int) -> int:
    """Return the bytes of one row's memory after a window; those of the window where it must be read whole."""
    assert model.width is not None
    x = torch.zeros(1, lookback, model.width, device=model.offsets.device)
    if not model.streams:
        return x.nbytes
    was_training = model.training
    after: int = model.eval()(x)[1].nbytes
    model.train(was_training)
    return after
