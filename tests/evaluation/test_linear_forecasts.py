"""Linear forecasts in closed form: each step ahead is fitted to the targets that are known."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pytest
import torch

from recollect.data.series import series_table as tables
from recollect.data.series.series_data import load_series
from recollect.data.series.time_stamps import Frequency
from recollect.evaluation import linear_forecasts
from recollect.evaluation.linear_forecasts import baseline_rows, fit_linear, fitted
from recollect.evaluation.rolling_origin import predictor, roll


def wave(length):
    draw = np.random.default_rng(0)
    return 50 + 10 * np.sin(2 * np.pi * np.arange(length) / 7) + draw.normal(size=length)


def workdays(folder):
    """A file of values on workdays only: with the weekends as missing values every window of 10 has a hole."""
    first = dt.date(2023, 1, 2)
    days = [first + dt.timedelta(days=n) for n in range(420)]
    rows = [f"{day},{value:.4f}" for day, value in zip(days, wave(420), strict=True) if day.weekday() < 5]
    path = folder / "workdays.csv"
    path.write_text("\n".join(["date,x", *rows]) + "\n", encoding="utf-8")
    return tables.read_series(str(path), gaps="mask")


def every_ninth(folder):
    """A file with an empty cell every nine rows: no target of 24 steps is complete."""
    cells = ["" if n % 9 == 0 else f"{value:.4f}" for n, value in enumerate(wave(400))]
    path = folder / "ninth.csv"
    path.write_text("t,x\n" + "".join(f"{n},{cell}\n" for n, cell in enumerate(cells)), encoding="utf-8")
    return tables.read_series(str(path))


@pytest.mark.parametrize(("make", "horizon", "lookback"), [(workdays, 10, 28), (every_ninth, 24, 96)])
def test_every_baseline_stands_although_every_target_has_a_hole(make, horizon, lookback, tmp_path):
    rows = baseline_rows(load_series(make(tmp_path), lookback=lookback, horizon=horizon))
    assert all(np.isfinite(list(row.values())).all() for row in rows.values())
    assert rows["linear"]["mse"] < 0.5 * rows["naive"]["mse"]


def holed(values, lookback=8, horizon=3):
    stamps = np.arange(len(values))
    series = (tables.TimeSeries("", stamps, values),)
    table = tables.SeriesTable("data.csv", ("x",), Frequency("steps", 1), series)
    return load_series(table, lookback=lookback, horizon=horizon)


@pytest.mark.parametrize("block", [2**24, 1])
def test_each_step_is_the_ridge_regression_of_its_known_targets(block, monkeypatch):
    monkeypatch.setattr(linear_forecasts, "BLOCK", block)
    values = wave(120)[:, None]
    values[np.random.default_rng(1).random(120) < 0.2] = np.nan
    data = holed(values)
    model = fitted("linear", data)
    batch = data.train.gather(np.arange(len(data.train)))
    ones = torch.ones(len(batch.x), 1, dtype=torch.float64)
    for step in range(3):
        known = batch.known[:, step, 0]
        assert not known.all()
        wide = torch.cat([batch.x[..., 0].double(), ones], dim=1)[known]
        penalty = 1e-3 * (wide.T @ wide).diagonal().mean() * torch.ones(9, dtype=torch.float64)
        penalty[-1] = 0
        expected = torch.linalg.solve(wide.T @ wide + penalty.diag(), wide.T @ batch.y[known, step, 0].double())
        found = torch.cat([model.map.linear.weight[step], model.map.linear.bias[step : step + 1]])
        torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)


def test_a_step_without_any_known_target_is_predicted_by_nothing_but_its_bias():
    values = wave(98)[:, None]
    values[1::2] = np.nan  # with a look-back of 8 and windows that begin at even rows only
    data = holed(values, lookback=8, horizon=2)
    part = data.train
    even = type(part)(part.rows, part.starts[part.starts % 2 == 0], 8, 2)
    model = fitted("linear", data)
    fit_linear(model, type(data)(data.name, data.table, data.facts, data.rows, even, data.valid, data.test))
    assert (model.map.linear.weight[1] == 0).all()
    assert model.map.linear.bias[1] == 0
    assert (model.map.linear.weight[0] != 0).any()
    assert np.isfinite(roll(predictor(model), data, "test")["mse"])
