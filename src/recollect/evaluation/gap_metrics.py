"""Errors of filled gaps over all windows of a part, and those of estimates that need no training."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from recollect.core.task import ItemScores, Measure
from recollect.data.series.gaps import GapBatch, hide, middle_gap
from recollect.data.series.windows import SeriesWindows
from recollect.evaluation.row_blocks import block_scores
from recollect.models.gap_filling import GapFiller
from recollect.models.simple_fills import interpolated, last_seen, neighbouring_seasons

BATCH = 256  # windows
GAP_MEASURES = {
    "mse": Measure("MSE", "mean squared error of hidden values, in deviations of the training part"),
    "mae": Measure("MAE", "mean absolute error of hidden values, in deviations of the training part"),
}

Fill = Callable[[GapBatch], Tensor]  # (B, T, C), an estimate of every value


def filler_of(model: GapFiller) -> Fill:
    """Return a model in eval mode as a function of batches."""
    device = next(model.parameters()).device
    return lambda batch: model.estimate(batch.values.to(device), batch.observed.to(device)).cpu()


def naive_fills(season: int) -> dict[str, Fill]:
    """Return the naive rows: the last value, the straight line, and the mean of the seasons before and after."""
    rows: dict[str, Fill] = {
        "last-value": lambda batch: last_seen(batch.values, batch.observed),
        "interpolation": lambda batch: interpolated(batch.values, batch.observed),
    }
    if season > 1:
        rows["season"] = lambda batch: neighbouring_seasons(batch.values, batch.observed, season)
    return rows


@torch.no_grad()
def gap_errors(
    fill: Fill, part: SeriesWindows, rows: int, *, is_open: bool, limit: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the squared and absolute errors and the number of hidden values, each (N, rows), gap in the middle."""
    squares, absolutes, counts = [], [], []
    for windows in part.in_order(BATCH, limit):
        batch = hide(windows, middle_gap(windows, rows), is_open=is_open)
        inside = slice(part.lookback, part.lookback + rows)
        error = (fill(batch) - batch.targets).masked_fill(~batch.hidden, 0.0)[:, inside].double()  # (B, rows, C)
        squares.append(error.square().sum(2))
        absolutes.append(error.abs().sum(2))
        counts.append(batch.hidden[:, inside].double().sum(2))
    return torch.cat(squares), torch.cat(absolutes), torch.cat(counts)


def gap_scores(
    fill: Fill, part: SeriesWindows, rows: int, *, is_open: bool, limit: int | None = None
) -> dict[str, float]:
    """Return the mean squared and the mean absolute error."""
    squares, absolutes, counts = gap_errors(fill, part, rows, is_open=is_open, limit=limit)
    total = counts.sum().clamp(min=1)
    return {"mse": float(squares.sum() / total), "mae": float(absolutes.sum() / total)}


def gap_items(fill: Fill, part: SeriesWindows, rows: int, *, is_open: bool) -> ItemScores:
    """Return the MSE by blocks of rows, and by place in the gap."""
    squares, _, counts = gap_errors(fill, part, rows, is_open=is_open)
    return block_scores(part, squares, counts)
