"""Measures of forecasts beside the same ones of utilsforecast and properscoring, on drawn series."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from utilsforecast import losses

import recollect as rc
from recollect.data.series.series_data import _mean_steps, load_series
from recollect.data.synthetic.series_generators import generate_series
from recollect.evaluation import forecast_metrics as metrics
from recollect.evaluation.linear_forecasts import ROWS, baseline_rows, fit_linear, fitted
from recollect.evaluation.rolling_origin import level_quantiles, predictor, roll
from recollect.models.forecast_outputs import LEVELS

SEASON = 4


@pytest.fixture
def drawn():
    draw = np.random.default_rng(3)
    training = draw.normal(5, 2, (60, 3))
    y, point = draw.normal(5, 2, (2, 12, 3))
    quantiles = np.sort(draw.normal(5, 2, (12, 3, len(LEVELS))), axis=2)
    return {"training": training, "y": y, "point": point, "quantiles": quantiles}


def frame(values, column):
    steps, series = values.shape
    ids = np.repeat(np.arange(series), steps)
    return pd.DataFrame({"unique_id": ids, "ds": np.tile(np.arange(steps), series), column: values.T.ravel()})


def both(drawn, names=()):
    table = frame(drawn["y"], "y")
    table["model"] = drawn["point"].T.ravel()
    for number, name in enumerate(names):
        table[name] = drawn["quantiles"][..., number].T.ravel()
    return table


def tensors(drawn):
    return {name: torch.from_numpy(values) for name, values in drawn.items()}


def test_mse_mae_and_smape_equal_utilsforecast(drawn):
    ours, table = tensors(drawn), both(drawn)
    y, point = ours["y"], ours["point"]
    np.testing.assert_allclose(metrics.squared_error(y, point).mean(0), losses.mse(table, ["model"])["model"])
    np.testing.assert_allclose(metrics.absolute_error(y, point).mean(0), losses.mae(table, ["model"])["model"])
    theirs = 200 * losses.smape(table, ["model"])["model"]  # a share of 1, ours is that of the M4 competition
    np.testing.assert_allclose(metrics.symmetric_error(y, point).mean(0), theirs)


def test_mase_equals_utilsforecast(drawn):
    ours = tensors(drawn)
    steps = torch.tensor(_mean_steps(drawn["training"], SEASON), dtype=torch.float64)
    found = metrics.absolute_error(ours["y"], ours["point"]).mean(0) / steps
    theirs = losses.mase(both(drawn), ["model"], SEASON, frame(drawn["training"], "y"))["model"]
    np.testing.assert_allclose(found, theirs)


def test_the_denominator_of_mase_is_that_of_the_training_part():
    table = generate_series("seasons")
    data = load_series(table, lookback=12, horizon=4, split="0.7,0.1,0.2")
    training = table.series[0].values[:168]
    expected = np.abs(training[12:] - training[:-12]).mean(0) / data.facts.deviations[""][0]
    np.testing.assert_allclose(data.facts.steps[""], expected)


def test_crps_equals_utilsforecast(drawn):
    ours = tensors(drawn)
    names = [f"q{number}" for number in range(len(LEVELS))]
    theirs = losses.mqloss(both(drawn, names), {"model": names}, np.array(LEVELS)).sort_values("unique_id")["model"]
    found = metrics.ranked_probability(ours["y"], ours["quantiles"], LEVELS).mean(0)
    np.testing.assert_allclose(found, 2 * theirs)


def test_crps_of_many_levels_tends_to_the_closed_form_of_properscoring():
    import properscoring

    levels = tuple((np.arange(2000) + 0.5) / 2000)
    y = torch.linspace(-2, 3, 7, dtype=torch.float64)
    quantiles = 0.5 + 1.5 * torch.special.ndtri(torch.tensor(levels, dtype=torch.float64))
    found = metrics.ranked_probability(y, quantiles.expand(7, -1), levels)
    np.testing.assert_allclose(found, properscoring.crps_gaussian(y.numpy(), mu=0.5, sig=1.5), atol=1e-3)


def test_coverage_and_its_interval():
    y = torch.arange(10.0)
    assert metrics.is_covered(y, torch.full((10,), 2.0), torch.full((10,), 5.0)).sum() == 4
    low, high = metrics.binomial_interval(0.8, 100)
    assert low == pytest.approx(0.7112, abs=1e-4)  # Wilson's, as statsmodels' proportion_confint gives it
    assert high == pytest.approx(0.8666, abs=1e-4)


def test_level_quantiles_are_those_of_the_errors_and_pool_where_there_are_few():
    errors = torch.randn(500, 3, 2, 1, generator=torch.Generator().manual_seed(0)).expand(-1, -1, -1, len(LEVELS))
    found = level_quantiles(errors)
    np.testing.assert_allclose(found[1, 0], np.quantile(errors[:, 1, 0, 0], LEVELS), atol=1e-6)
    growing = errors[:20] * torch.tensor([1.0, 2.0, 4.0])[:, None, None]
    unit = growing[..., 0].square().mean(0).sqrt()  # (3, 2), which grows
    few = level_quantiles(growing)
    pooled = np.quantile(growing[:, :, 1, 0] / unit[:, 1], LEVELS)
    np.testing.assert_allclose(few[2, 1], pooled * unit[2, 1].item(), rtol=1e-5)


def test_pooled_intervals_never_shrink_with_the_horizon():
    errors = torch.tensor([1.0, 3.0, 2.0, 5.0]).repeat(20, 1)
    errors[::2] *= -1
    errors[:, 3] = torch.nan  # never known: as wide as the step before
    widths = level_quantiles(errors[..., None, None])[:, 0].diff(dim=-1).sum(-1)
    unit = torch.tensor([1.0, 6.5**0.5, 6.5**0.5, 6.5**0.5])  # steps 2 and 3 have the mean of their squares
    torch.testing.assert_close(widths / widths[0], unit)


def test_intervals_of_a_random_walk_widen_although_there_are_few_windows():
    model = fitted("naive", load_series(generate_series("random-walk:length=240"), lookback=24, horizon=12))
    widths = (model.offsets[..., -1] - model.offsets[..., 0])[:, 0]
    assert (widths.diff() >= 0).all()
    assert widths[-1] > 2 * widths[0]  # by the square root of 12 in the mean


def test_the_coverage_counts_windows_that_do_not_overlap(tmp_path):
    run = rc.train("seasons", model="naive", horizon=12, lookback=24, out=tmp_path / "run")
    details = run.evaluate().details
    assert details["windows_apart"] == pytest.approx((48 - 12 + 1) / 12)
    coverage = run.evaluate().rows["naive"]["coverage"]
    assert details["coverage_interval"] == list(metrics.binomial_interval(coverage, details["windows_apart"]))
    assert "of 3.08 windows that do not overlap" in details["signatures"][0]


def test_every_baseline_is_a_row_and_a_season_is_found():
    data = load_series(generate_series("seasons:noise=0"), lookback=36, horizon=12)
    rows = baseline_rows(data)
    assert tuple(rows) == ROWS
    assert rows["seasonal-naive"]["mse"] < 0.1 * rows["naive"]["mse"]
    assert rows["nlinear"]["mse"] < rows["seasonal-naive"]["mse"]


def test_a_perfect_linear_series_is_predicted_without_error():
    data = load_series(generate_series("sine:noise=0,length=2000"), lookback=8, horizon=4, split="0.6,0.2,0.2")
    model = fitted("linear", data)
    fit_linear(model, data, ridge=1e-9)
    assert roll(predictor(model), data, "test")["mae"] < 1e-4
