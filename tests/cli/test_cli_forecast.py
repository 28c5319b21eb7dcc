"""Forecasting as a user types it: train, resume, evaluate, predict as table, JSON and picture, and what is refused."""

from __future__ import annotations

import csv
import io
import json
import math
from xml.etree import ElementTree

import numpy as np
import pytest

import recollect as rc
from command_line import ask, run
from going_on import check_goes_on_bit_equal
from recollect.models.forecast_config import FORECASTERS
from recollect.runs.config import RunConfig
from recollect.runs.run import Run
from recollect.runs.train import begin
from tiers import slow_after


def small(family: str = "gru", data: str = "seasons", **options) -> RunConfig:
    settings = {"max_steps": 10, "batch_size": 16, "evaluate_every": 5, "horizon": 6, "lookback": 24} | options
    if family not in ("naive", "seasonal-naive", "drift", "linear", "nlinear", "dlinear", "window"):
        settings |= {"width": 8}
    return RunConfig.make(data, family, task="forecast", **settings)


@pytest.fixture
def table(tmp_path):
    """A file of two channels over days, with a season of seven and a missing value."""
    lines = ["date,sold,price"]
    for day in range(140):
        month, rest = divmod(day, 28)
        sold = "" if day == 33 else f"{50 + 10 * math.sin(2 * math.pi * day / 7) + day % 3:.3f}"
        lines.append(f"2023-{month + 1:02}-{rest + 1:02},{sold},{3 + day % 5}")
    stamps = [line for line in lines if not line.startswith("2023-02-29")]
    path = tmp_path / "shop.csv"
    path.write_text("\n".join(stamps) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "family", slow_after(4, sorted(FORECASTERS, key=lambda f: f not in ("drift", "dlinear", "lstm")))
)
def test_every_family_trains_and_predicts(family, tmp_path):
    rows, folder = [], Run(tmp_path / "run")
    assert begin(small(family), folder, rows.append)
    errors = [row["valid_mse"] for row in rows if "valid_mse" in row]
    assert errors[-1] <= errors[0]
    (forecast,) = folder.predict("seasons")
    assert forecast.point.shape == (6, 1)
    assert forecast.rows()[0]["time"] == "2020-01"
    assert "forecaster" in (tmp_path / "run" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("options", [{}, {"family": "linear", "ahead": "free"}, {"output": "quantile", "dropout": 0.5}])
def test_kill_and_resume_give_the_same_bits(options, tmp_path):
    check_goes_on_bit_equal(small(**options), tmp_path)


@pytest.mark.parametrize("output", ["gaussian", "quantile"])
def test_distributions_are_learned_and_calibrated(output, tmp_path):
    rows, folder = [], Run(tmp_path / "run")
    begin(small("window", output=output, max_steps=40, rate=0.01, evaluate_every=20), folder, rows.append)
    found = [row["valid_crps"] for row in rows if "valid_crps" in row]
    assert found[-1] < 0.7 * found[0]
    assert folder.model.offsets.abs().max() > 0  # the validation part moved the quantiles
    low, high = folder.predict("seasons")[0].quantiles[..., [0, -1]].T
    assert (low < high).all()


def test_the_whole_way(table, tmp_path):
    out = str(tmp_path / "run")
    words = [
        "--task",
        "forecast",
        "-m",
        "nlinear",
        "--target",
        "sold",
        "--horizon",
        "7",
        "--lookback",
        "14",
        "--gaps=mask",
    ]
    done = ask("train", str(table), *words, "--budget", "30steps", "--out", out)
    assert f"Next: recollect predict {out} {table}" in done.stderr
    evaluated = json.loads(ask("evaluate", out, "--json").stdout)
    names = [row["read"] for row in evaluated["rows"]]
    assert names == ["nlinear", "(naive)", "(seasonal-naive)", "(drift)", "(linear)", "(nlinear)", "(dlinear)"]
    assert set(evaluated["measures"]) == {"mse", "mae", "mase", "smape", "crps", "coverage"}
    assert all(math.isfinite(row[name]) for row in evaluated["rows"] for name in evaluated["measures"])
    assert evaluated["coverage_interval"][0] < evaluated["rows"][0]["coverage"] < evaluated["coverage_interval"][1]

    page, picture = tmp_path / "plot.html", tmp_path / "plot.svg"
    rows = list(csv.DictReader(io.StringIO(ask("predict", out, str(table), "--plot", str(picture)).stdout)))
    assert len(rows) == 7
    assert list(rows[0]) == ["time", "channel", "forecast", "low_80", "high_80"]
    assert all(float(row["low_80"]) < float(row["high_80"]) for row in rows)
    ElementTree.fromstring(picture.read_text(encoding="utf-8"))  # well formed
    found = json.loads(ask("predict", out, str(table), "--json", "--plot", str(page)).stdout)
    assert [step["time"] for step in found["steps"]] == [row["time"] for row in rows]
    assert "<polygon" in page.read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_fresh_process_trains_a_built_in_series(tmp_path):
    done = run("train", "sine", "-m", "gru", "--budget", "5steps", "--set", "horizon=4", "--out", str(tmp_path / "run"))
    assert "Next: recollect predict" in done.stderr
    run("plan", "sine", "-m", "gru", "--horizon", "4", "--json")


def test_many_series_in_one_file(tmp_path):
    path = tmp_path / "shops.csv"
    rows = [
        f"{day},{shop},{base + day % 7 + 0.1 * day}" for shop, base in (("a", 10), ("b,c", 1000)) for day in range(90)
    ]
    path.write_text("day,shop,sold\n" + "\n".join(r.replace("b,c", '"b,c"') for r in rows) + "\n", encoding="utf-8")
    config = small("linear", str(path), series="shop", season=7, lookback=14, horizon=3)
    folder = Run(tmp_path / "run")
    begin(config, folder, lambda row: None)
    first, second = folder.predict(str(path))
    assert (first.source, second.source) == ("a", "b,c")
    assert second.point.min() > 500 > first.point.max()  # each has its own scale
    lines = "\n".join(found.targets[0].text for found in (first, second)).splitlines()
    assert [row["series"] for row in csv.DictReader(lines)] == ["a"] * 3 + ["b,c"] * 3


def test_other_data_are_evaluated_with_the_scales_of_the_run(tmp_path):
    folder = Run(tmp_path / "run")
    begin(small("seasonal-naive"), folder, lambda row: None)
    own, other = folder.evaluate(), folder.evaluate("seasons:seed=5")
    assert own.value != other.value
    with pytest.raises(ValueError, match="expected those that the run was trained on: value, a row each month"):
        folder.evaluate("sine")


def test_python_and_command_line_have_the_same_words(tmp_path):
    made = rc.train("seasons", model="linear", horizon=4, lookback=12, budget="5steps", out=tmp_path / "run")
    assert made.task.name == "forecast"
    assert made.predict("seasons")[0].point.shape == (4, 1)


@pytest.mark.parametrize(
    ("change", "words", "message"),
    [
        (("2023-01-03", "2023-01-02"), [], "row 4, column 'date': 2023-01-02 occurs twice"),
        (("2023-01-03", "2023-01-09"), [], "row 5, column 'date': 2023-01-04 comes after 2023-01-09"),
        (
            ("2023-01-03,", "2023-01-03 07:00,"),
            [],
            "row 4, column 'date': mixed frequencies: most rows are a day apart",
        ),
        (("2023-01-03,", "soon,"), [], "row 4, column 'date': got 'soon', expected a time stamp"),
        ((",3\n", ",cheap\n"), ["--target", "price"], "column 'price': got 'cheap', expected a number"),
        ((",3\n", ",inf\n"), ["--target", "price"], "got 'inf', expected a finite number"),
        (("", ""), ["--target", "profit"], "there is no column 'profit'"),
        (("", ""), ["--horizon", "5000", "--gaps", "mask"], "horizon 5000 and lookback 24 need 5024 rows"),
        (("", ""), [], "a gap: 3 rows are missing after 2023-01-28"),
        (("", ""), ["--horizont", "3"], "horizont: no such setting of the task forecast; did you mean horizon"),
        (("", ""), ["--normalise", "mean"], 'normalise: got "mean", expected one of none, last, instance'),
    ],
)
def test_bad_input_is_named_with_row_and_column_and_exits_with_2(change, words, message, table, tmp_path):
    table.write_text(table.read_text(encoding="utf-8").replace(*change), encoding="utf-8")
    options = [] if "--horizon" in words else ["--horizon", "6"]
    done = ask(
        *["train", str(table), "--task", "forecast", "-m", "gru", *words, *options],
        *["--lookback", "24", "--out", str(tmp_path / "run")],
        code=2,
    )
    assert message in done.stderr
    assert not (tmp_path / "run" / "config.json").exists()


def test_a_constant_series_is_refused(tmp_path):
    path = tmp_path / "flat.csv"
    path.write_text("t,x\n" + "".join(f"{n},4\n" for n in range(80)), encoding="utf-8")
    options = ["--task", "forecast", "--horizon", "3", "--lookback", "6", "--out", str(tmp_path / "run")]
    assert "column 'x': constant at 4" in ask("train", str(path), *options, code=2).stderr


def test_a_history_that_is_too_short_is_refused(tmp_path):
    folder = Run(tmp_path / "run")
    begin(small("linear"), folder, lambda row: None)
    with pytest.raises(ValueError, match="the series has 20 rows, the model reads 24"):
        folder.predict("seasons:length=20")


def test_a_short_series_trains_with_nothing_chosen(tmp_path):
    path, out = tmp_path / "passengers.csv", str(tmp_path / "run")
    rows = [f"{1949 + n // 12}-{n % 12 + 1:02},{100 + n + 10 * math.sin(math.pi * n / 6):.2f}\n" for n in range(144)]
    path.write_text("month,sold\n" + "".join(rows), encoding="utf-8")
    done = ask("train", str(path), "--task", "forecast", "--budget", "5steps", "--out", out)
    fitted = "short: horizon 12 and look-back 36, fitted to 101 rows of training; others: --set horizon=N"
    assert fitted in done.stderr
    assert len(list(csv.DictReader(io.StringIO(ask("predict", out, str(path)).stdout)))) == 12
    longer = tmp_path / "longer.csv"  # the run's windows, not those that would fit this table
    more = [f"{1900 + n // 12}-{n % 12 + 1:02},{100 + n + 10 * math.sin(math.pi * n / 6):.2f}\n" for n in range(600)]
    longer.write_text("month,sold\n" + "".join(more), encoding="utf-8")
    assert math.isfinite(rc.load(out).evaluate(str(longer)).value)


def test_a_short_history_is_padded_with_values_that_were_not_observed(table, tmp_path):
    folder = Run(tmp_path / "run")
    begin(small("linear", str(table), gaps="mask", target="sold"), folder, lambda row: None)
    short = tmp_path / "short.csv"
    rows = [f"2024-01-{day:02},{40 + day}\n" for day in range(1, 11)]
    short.write_text("date,sold\n" + "".join(rows), encoding="utf-8")
    found = folder.predict(str(short))[0].point
    empty = [f"2023-12-{day:02},\n" for day in range(18, 32)]  # the same history with 14 rows that were not observed
    short.write_text("date,sold\n" + "".join([*empty, *rows]), encoding="utf-8")
    np.testing.assert_allclose(found, folder.predict(str(short))[0].point)


def test_the_calendar_of_a_short_history_is_that_of_earlier_days(table, tmp_path):
    folder = Run(tmp_path / "run")
    config = small("linear", str(table), gaps="mask", target="sold", calendar=True, horizon=14, lookback=24)
    begin(config, folder, lambda row: None)
    rows = [f"2024-01-{day:02},{40 + day}\n" for day in range(1, 11)]
    empty = [f"2023-12-{day:02},\n" for day in range(18, 32)]
    short, whole = tmp_path / "short.csv", tmp_path / "whole.csv"
    short.write_text("date,sold\n" + "".join(rows), encoding="utf-8")
    whole.write_text("date,sold\n" + "".join([*empty, *rows]), encoding="utf-8")
    np.testing.assert_allclose(folder.predict(str(short))[0].point, folder.predict(str(whole))[0].point)


def test_a_constant_history_of_a_known_series_is_predicted(tmp_path):
    folder = Run(tmp_path / "run")
    begin(small("naive"), folder, lambda row: None)
    flat = tmp_path / "flat.csv"
    rows = [f"{2020 + n // 12}-{n % 12 + 1:02},9\n" for n in range(40)]
    flat.write_text("time,value\n" + "".join(rows), encoding="utf-8")
    np.testing.assert_allclose(folder.predict(str(flat))[0].point, 9, rtol=1e-6)


@pytest.mark.parametrize("family", ["dlinear", "seasonal-naive"])
def test_a_calendar_is_refused_where_nothing_reads_it(family, tmp_path):
    with pytest.raises(ValueError, match=f"calendar: {family} reads values alone"):
        begin(small(family, calendar=True), Run(tmp_path / "run"), lambda row: None)


def test_plots_are_refused_where_a_task_has_none(tmp_path):
    made = rc.train("recall:count=200", model="markov", out=tmp_path / "run")
    assert (
        "--plot: the task language has no plots"
        in ask("predict", str(made.folder), "x", "--plot", "x.svg", code=2).stderr
    )
