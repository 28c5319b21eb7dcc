"""Evaluation with a rolling origin: a forecast from every window of a part, the last incomplete batch included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from recollect.core.task import ItemScores
from recollect.data.series.series_data import SeriesData
from recollect.data.series.windows import WindowBatch
from recollect.evaluation import forecast_metrics as metrics
from recollect.evaluation.row_blocks import block_scores
from recollect.models import forecast_outputs as outputs
from recollect.models.forecast_outputs import LEVELS
from recollect.models.forecasting import Forecaster

BATCH = 256  # windows
LOW, HIGH = 0, len(LEVELS) - 1  # of the 80 % interval: 10 % and 90 %

Predict = Callable[[WindowBatch], tuple[Tensor, Tensor]]  # points (B, H, C) and quantiles (B, H, C, 9)


@dataclass
class ForecastTally:
    """Sums of all measures over values that are known, in double precision."""

    scales: tuple[Tensor, Tensor, Tensor]  # means, deviations and MASE's denominators (S, C)
    sums: dict[str, float] = field(default_factory=dict)
    count: int = 0

    def add(self, batch: WindowBatch, point: Tensor, quantiles: Tensor) -> None:
        """Add the forecasts of a batch."""
        mean, deviation, steps = (table.to(point.device)[batch.series][:, None] for table in self.scales)  # (B, 1, C)
        y = batch.y
        absolute = metrics.absolute_error(y, point)
        found = {
            "mse": metrics.squared_error(y, point),
            "mae": absolute,
            "mase": absolute / steps,
            "smape": metrics.symmetric_error(y * deviation + mean, point * deviation + mean),
            "crps": metrics.ranked_probability(y, quantiles, LEVELS),
            "coverage": metrics.is_covered(y, quantiles[..., LOW], quantiles[..., HIGH]),
        }
        for name, values in found.items():
            known = values if batch.known is None else values.masked_fill(~batch.known, 0.0)
            self.sums[name] = self.sums.get(name, 0.0) + float(known.double().sum())
        self.count += batch.count

    def scores(self) -> dict[str, float]:
        """Return the mean of each measure."""
        return {name: total / max(self.count, 1) for name, total in self.sums.items()}


@torch.no_grad()
def roll(predict: Predict, data: SeriesData, split: str, limit: int | None = None) -> dict[str, float]:
    """Return the measures over all windows of a part, or the first `limit`."""
    tally = ForecastTally(data.scales())
    for batch in getattr(data, split).in_order(BATCH, limit):
        tally.add(batch, *predict(batch))
    return tally.scores()


@torch.no_grad()
def window_items(predict: Predict, data: SeriesData, split: str, measure: str) -> ItemScores:
    """Return the MSE or CRPS of a part by blocks of rows, and by steps ahead."""
    above, below = [], []
    for batch in getattr(data, split).in_order(BATCH):
        point, quantiles = predict(batch)
        is_point = measure == "mse"
        errors = metrics.squared_error(batch.y, point)
        errors = errors if is_point else metrics.ranked_probability(batch.y, quantiles, LEVELS)  # (B, H, C)
        known = torch.ones_like(errors, dtype=torch.bool) if batch.known is None else batch.known
        above.append(errors.masked_fill(~known, 0.0).double().sum(2))
        below.append(known.double().sum(2))
    return block_scores(getattr(data, split), torch.cat(above), torch.cat(below))


def predictor(model: Forecaster) -> Predict:
    """Return a model in eval mode as a function of batches; its quantiles are those of its calibration."""
    kind = model.config.kind
    device = model.offsets.device

    def predict(batch: WindowBatch) -> tuple[Tensor, Tensor]:
        raw = forecast_batch(model, batch, device)
        unit = outputs.unit_of(kind, raw, batch.x.to(device))
        return outputs.point(kind, raw).cpu(), outputs.quantiles(kind, raw, model.offsets, unit).cpu()

    return predict


def forecast_batch(model: Forecaster, batch: WindowBatch, device: torch.device) -> Tensor:
    """Return the raw outputs (B, H, C, Q) of a batch, computed on a device."""
    observed = None if batch.observed is None else batch.observed.to(device)
    calendar = None if batch.calendar is None else batch.calendar.to(device)
    return model.forecast(batch.x.to(device), observed=observed, calendar=calendar)[0]


@torch.no_grad()
def deciding_error(model: Forecaster, data: SeriesData, split: str, limit: int | None = None) -> float:
    """Return what selects weights over all windows of a part: the MSE of points, the CRPS of distributions."""
    kind = model.config.kind
    predict = predictor(model)
    total, count = 0.0, 0
    for batch in getattr(data, split).in_order(BATCH, limit):
        if kind == "point":
            error = metrics.squared_error(batch.y, forecast_batch(model, batch, model.offsets.device)[..., 0].cpu())
        else:
            error = metrics.ranked_probability(batch.y, predict(batch)[1], LEVELS)
        known = error if batch.known is None else error.masked_fill(~batch.known, 0.0)
        total += float(known.double().sum())
        count += batch.count
    return total / max(count, 1)


@torch.no_grad()
def calibrate(model: Forecaster, data: SeriesData, limit: int | None = None) -> None:
    """Set the offsets that the quantiles need to hold on the validation part, for each step ahead and channel.

    The offset at level q is the q-quantile of y − ẑ_q over the windows, counted in `unit_of` (Romano et al. 2019,
    conformalised quantile regression, one-sided at each level). With few windows neighbouring steps are pooled.
    """
    model.offsets.copy_(level_quantiles(scaled_errors(model, data, "valid", limit)))


def scaled_errors(model: Forecaster, data: SeriesData, split: str, limit: int | None = None) -> Tensor:
    """Return y − ẑ_q of a part in `unit_of`, (N, H, C, 9), NaN where y is missing; (N, H, C, 1) of points."""
    kind = model.config.kind
    device = model.offsets.device
    errors = []
    for batch in getattr(data, split).in_order(BATCH, limit):
        raw = forecast_batch(model, batch, device)
        unit = outputs.unit_of(kind, raw, batch.x.to(device))
        found = raw if kind == "point" else outputs.quantiles(kind, raw)
        scaled = (batch.y.to(device)[..., None] - found) / unit  # (B, H, C, 9 or 1)
        known = batch.known
        errors.append(scaled if known is None else scaled.masked_fill(~known.to(device)[..., None], torch.nan))
    return torch.cat(errors)


FEW = 100  # values that a quantile of errors needs
SMALLEST = 1e-12  # error by which others are divided


def level_quantiles(errors: Tensor) -> Tensor:
    """Return the quantile of errors (N, H, C, 9 or 1) at each level, (H, C, 9).

    Where N is small neighbouring steps are pooled: each is divided by its root mean square error, of which the best fit
    that never shrinks with the horizon is taken, and the quantiles of the pool are multiplied by it again.
    """
    count, horizon = errors.shape[:2]
    reach = 0 if count >= FEW else -(-FEW // max(count, 1))  # neighbours on each side
    growth = _growth(errors) if reach else torch.ones_like(errors[0, ..., 0])  # (H, C)
    errors = errors / growth[..., None]
    levels = torch.tensor(LEVELS, dtype=errors.dtype, device=errors.device)
    found = []
    for step in range(horizon):
        near = errors[:, max(step - reach, 0) : step + reach + 1].flatten(0, 1)  # (n, C, 9 or 1)
        every = torch.nanquantile(near, levels, dim=0)  # (9, C, 9 or 1)
        found.append(every[..., 0].T if near.shape[2] == 1 else every.diagonal(dim1=0, dim2=2))
    return (torch.stack(found) * growth[..., None]).nan_to_num(0.0)


def _growth(errors: Tensor) -> Tensor:
    """Return the root mean square error of each step and channel (H, C), fitted so that it never shrinks."""
    middle = errors[..., errors.shape[3] // 2]  # (N, H, C), of the median
    known = (~middle.isnan()).sum(0)
    squares = middle.nan_to_num(0.0).square().sum(0) / known.clamp(min=1)
    columns = [_never_shrinking(s, n) for s, n in zip(squares.T.tolist(), known.T.tolist(), strict=True)]
    return torch.tensor(columns, dtype=errors.dtype, device=errors.device).T.sqrt().clamp(min=SMALLEST)


def _never_shrinking(values: Sequence[float], weights: Sequence[int]) -> list[float]:
    """Return the weighted least-squares fit that never shrinks: neighbours that do are replaced by their mean.

    Pool-adjacent-violators (Ayer et al. 1955).
    """
    pools: list[tuple[float, int, int]] = []  # mean, weight, steps
    for value, weight in zip(values, weights, strict=True):
        pools.append((value, weight, 1))
        while len(pools) > 1 and (pools[-1][0] <= pools[-2][0] or not pools[-1][1]):
            (first, left, before), (second, right, after) = pools[-2:]
            mean = (first * left + second * right) / max(left + right, 1)
            pools[-2:] = [(mean, left + right, before + after)]
    return [mean for mean, _, steps in pools for _ in range(steps)]
