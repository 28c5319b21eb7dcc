"""The rows of every table of forecasts: naive forecasts, and linear maps fitted in closed form.

A linear map from the window to the horizon has a least-squares solution, so that linear, NLinear and DLinear can stand
in every table at the cost of one matrix factorisation (Toner & Darlow 2024). A ridge keeps it well conditioned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from recollect.data.series.series_data import SeriesData
from recollect.evaluation.rolling_origin import calibrate, predictor, roll
from recollect.models.forecast_config import ForecastConfig
from recollect.models.forecasting import Forecaster
from recollect.models.window_maps import NAIVE, DecompositionMap, LinearMap, moving_average

RIDGE = 1e-3  # of the mean diagonal of XᵀX
BATCH = 512  # windows
BLOCK = 2**24  # numbers of the matrices that are held at once where steps differ
LINEAR = ("linear", "nlinear", "dlinear")
ROWS = (*NAIVE, *LINEAR)


def baseline_rows(data: SeriesData) -> dict[str, dict[str, float]]:
    """Return the measures of every baseline on the test part."""
    return {name: roll(predictor(fitted(name, data)), data, "test") for name in ROWS}


def fitted(name: str, data: SeriesData) -> Forecaster:
    """Return a baseline as a forecaster: fitted on the training part, calibrated on the validation part."""
    part = data.train
    channels = data.rows.values.shape[1]
    config = ForecastConfig(name, channels, part.lookback, part.horizon, season=data.facts.season)
    model = Forecaster(config).eval()
    if name in LINEAR:
        fit_linear(model, data)
    calibrate(model, data)
    return model


def fit_linear(model: Forecaster, data: SeriesData, ridge: float = RIDGE) -> None:
    """Set a linear forecaster's weights to the ridge regression of the training part's windows."""
    split = _split if model.config.family == "dlinear" else _flat
    weights, bias = _solve(data, split, model.config.norm == "last", ridge)
    kernel = model.map
    with torch.no_grad():
        if isinstance(kernel, DecompositionMap):
            half = weights.shape[1] // 2
            kernel.seasonal.weight.copy_(weights[:, :half])
            kernel.trend.weight.copy_(weights[:, half:])
            kernel.seasonal.bias.copy_(bias)
            kernel.trend.bias.zero_()
        else:
            assert isinstance(kernel, LinearMap)
            kernel.linear.weight.copy_(weights)
            kernel.linear.bias.copy_(bias)


def _flat(x: Tensor) -> Tensor:
    return x


def _split(x: Tensor) -> Tensor:
    """Return what remains and the moving average (N, 2 L), the two inputs of DLinear."""
    trend = moving_average(x)
    return torch.cat([x - trend, trend], dim=1)


def _solve(
    data: SeriesData, features: Callable[[Tensor], Tensor], is_last: bool, ridge: float
) -> tuple[Tensor, Tensor]:
    """Return weights (H, L′) and bias (H,) of the ridge regression over all windows and channels.

    Each step ahead is fitted to its known targets; one without any has weights and a bias of 0.
    """
    square: Tensor | None = None
    cross: Tensor | None = None
    is_whole = True
    for wide, y, missing in _regressions(data, features, is_last):
        square = wide.T @ wide if square is None else square + wide.T @ wide
        cross = wide.T @ y if cross is None else cross + wide.T @ y
        is_whole = is_whole and not missing.any()
    assert square is not None
    assert cross is not None
    if is_whole:
        found = torch.linalg.solve(_ridged(square, ridge), cross).T  # (H, L′ + 1)
    else:
        found = _solve_each(data, features, is_last, ridge, square, cross)
    return found[:, :-1].float(), found[:, -1].float()


def _regressions(
    data: SeriesData, features: Callable[[Tensor], Tensor], is_last: bool
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield inputs with a one for the bias (N, L′ + 1), targets (N, H), 0 where missing, and where they are missing."""
    for batch in data.train.in_order(BATCH):
        x = batch.x.double().transpose(1, 2).flatten(0, 1)  # (B·C, L)
        y = batch.y.double().transpose(1, 2).flatten(0, 1)  # (B·C, H)
        missing = torch.zeros_like(y, dtype=torch.bool)
        if batch.known is not None:
            missing = ~batch.known.transpose(1, 2).flatten(0, 1)
        if is_last:
            x, y = x - x[:, -1:], y - x[:, -1:]
        ones = torch.ones(len(x), 1, dtype=x.dtype)
        yield torch.cat([features(x), ones], dim=1), y.masked_fill(missing, 0.0), missing


def _solve_each(
    data: SeriesData,
    features: Callable[[Tensor], Tensor],
    is_last: bool,
    ridge: float,
    square: Tensor,
    cross: Tensor,
) -> Tensor:
    """Return the solution of each step ahead (H, L′ + 1): the windows whose target is missing are subtracted from XᵀX.

    A block of steps at a time, as each step has a matrix of its own.
    """
    horizon = cross.shape[1]
    block = max(1, BLOCK // square.numel())
    found = []
    for first in range(0, horizon, block):
        steps = slice(first, min(first + block, horizon))
        squares = square.repeat(steps.stop - first, 1, 1)
        for wide, _, missing in _regressions(data, features, is_last):
            for own, left_out in zip(squares, missing[:, steps].T, strict=True):
                rows = wide[left_out]
                own -= rows.T @ rows
        found += [_known_only(own, right, ridge) for own, right in zip(squares, cross[:, steps].T, strict=True)]
    return torch.stack(found)


def _known_only(square: Tensor, right: Tensor, ridge: float) -> Tensor:
    known = square[-1, -1].round()  # the ones of the windows that are left
    return torch.linalg.solve(_ridged(square, ridge), right) if known > 0 else torch.zeros_like(right)


def _ridged(square: Tensor, ridge: float) -> Tensor:
    penalty = ridge * square.diagonal().mean() * torch.ones(len(square), dtype=square.dtype)
    penalty[-1] = 0  # not of the bias
    return square + torch.diag(penalty)
