"""Filling gaps as a user types it, beside estimates that need no training; hidden values are never read."""

from __future__ import annotations

import csv
import io
import json
import math

import numpy as np
import pytest
import torch

import recollect as rc
from command_line import ask
from going_on import check_goes_on_bit_equal
from recollect.data.series.gaps import GapBatches, hide, middle_gap
from recollect.data.series.series_data import load_series
from recollect.data.synthetic.series_generators import generate_series
from recollect.evaluation.gap_metrics import naive_fills
from recollect.models.simple_fills import interpolated, last_seen, neighbouring_seasons
from recollect.runs.config import RunConfig
from tiers import slow_after


def small(**options) -> RunConfig:
    settings = {"max_steps": 10, "batch_size": 16, "evaluate_every": 5, "gap": 4, "context": 12, "width": 8} | options
    return RunConfig.make("seasons", settings.pop("family", "gru"), task="fill", **settings)


@pytest.mark.parametrize("options", slow_after(1, [{}, {"family": "transformer", "heads": 2}, {"sides": "before"}]))
def test_kill_and_resume_give_the_same_bits(options, tmp_path):
    check_goes_on_bit_equal(small(**options), tmp_path)


def test_simple_estimates_equal_numpy():
    draw = np.random.default_rng(0)
    values = draw.normal(size=30)
    observed = draw.random(30) > 0.6
    steps = np.arange(30)
    expected = np.interp(steps, steps[observed], values[observed])
    x, seen = torch.from_numpy(values)[None, :, None], torch.from_numpy(observed)[None, :, None]
    np.testing.assert_allclose(interpolated(x, seen)[0, :, 0], expected)
    first = int(np.flatnonzero(observed)[0])
    last = [values[steps[: t + 1][observed[: t + 1]][-1]] if t >= first else 0.0 for t in steps]
    np.testing.assert_allclose(last_seen(x, seen)[0, :, 0], last)
    assert (interpolated(x, torch.zeros_like(seen)) == 0).all()


def test_the_seasons_beside_a_gap_are_averaged():
    values = torch.arange(12.0)[None, :, None].repeat(1, 1, 2)
    observed = torch.ones(1, 12, 2, dtype=torch.bool)
    observed[:, 4:7, 0] = False  # season 4: steps 0 and 8 are the neighbours of 4, 7 of its own has 3 and 11
    observed[:, 8:, 1] = False
    found = neighbouring_seasons(values, observed, 4)
    assert found[0, 4:7, 0].tolist() == [4, 5, 6]  # (0 + 8) / 2 …
    assert found[0, 8:, 1].tolist() == [4, 5, 6, 7]  # only the season before is known
    before = neighbouring_seasons(values, observed, 4, is_both=False)
    assert before[0, 4:7, 0].tolist() == [0, 1, 2]
    assert torch.equal(before[:, :8, 1], values[:, :8, 1])  # what is known stays


@pytest.mark.parametrize("is_open", [False, True])
def test_hidden_values_cannot_be_read(is_open):
    data = load_series(generate_series("seasons"), lookback=12, horizon=16)
    batch = next(iter(GapBatches(data.train, 4, 32, is_open=is_open)))
    assert 1 <= batch.hidden.any(2).sum(1).min() <= batch.hidden.any(2).sum(1).max() <= 4
    assert not (batch.hidden & batch.observed).any()
    assert (batch.values[~batch.observed] == 0).all()
    begun = batch.hidden.any(2).int().cummax(1).values.bool()
    assert (batch.observed & begun[..., None]).any() != is_open  # what comes after is read from both sides only
    windows = data.test.gather(np.arange(3))
    fixed = hide(windows, middle_gap(windows, 4), is_open=is_open)
    assert fixed.hidden[:, 12:16].all()
    assert fixed.hidden.sum() == 3 * 4


def test_a_trained_filler_beats_what_needs_no_training_on_a_noisy_sine(tmp_path):
    run = rc.train("sine:length=600", task="fill", budget="150steps", width=16, rate=0.01, out=tmp_path / "run")
    rows = run.evaluate().rows
    assert list(rows) == ["gru", "(last-value)", "(interpolation)"]  # there is no season
    assert rows["gru"]["mse"] < min(rows["(last-value)"]["mse"], rows["(interpolation)"]["mse"])
    assert run.task.item_scores(run.model, run.dataset(), "test").value == pytest.approx(rows["gru"]["mse"])
    assert [one.name for one in run.task.baselines(run.dataset())] == list(naive_fills(1))


def test_the_seasons_are_read(tmp_path):
    rows = rc.train("seasons", task="fill", budget="40steps", width=8, rate=0.01, out=tmp_path / "run").evaluate().rows
    assert rows["gru"]["mse"] < 0.2 * rows["(interpolation)"]["mse"]


@pytest.fixture
def table(tmp_path):
    """A file of two channels over days: an empty cell, and a row that is not there."""
    lines = ["day,sold,price"]
    for day in range(200):
        sold = "" if day in (40, 41) else f"{50 + 10 * math.sin(2 * math.pi * day / 7):.3f}"
        lines += [] if day == 60 else [f"{day},{sold},{3 + day % 5}"]
    path = tmp_path / "shop.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_the_whole_way(table, tmp_path):
    out = str(tmp_path / "run")
    shape = ["--gap", "3", "--context", "14", "--season", "7"]
    done = ask("train", str(table), "--task", "fill", *shape, "--budget", "20steps", "--set", "width=8", "--out", out)
    assert f"Next: recollect predict {out} {table}" in done.stderr
    evaluated = json.loads(ask("evaluate", out, "--json").stdout)
    assert [row["read"] for row in evaluated["rows"]] == ["gru", "(last-value)", "(interpolation)", "(season)"]
    rows = list(csv.DictReader(io.StringIO(ask("predict", out, str(table)).stdout)))
    assert [row["time"] for row in rows] == [str(day) for day in range(200)]
    given = {row["day"]: row for row in csv.DictReader(table.read_text(encoding="utf-8").splitlines())}
    for row in rows:
        for channel in ("sold", "price"):
            known = given.get(row["time"], {}).get(channel, "")
            assert float(row[channel]) == float(known) if known else math.isfinite(float(row[channel]))
    found = json.loads(ask("predict", out, str(table), "--json").stdout)["filled"]
    expected = [("40", "sold"), ("41", "sold"), ("60", "sold"), ("60", "price")]
    assert [(cell["time"], cell["channel"]) for cell in found] == expected
    assert "--plot: the task fill has no plots" in ask("predict", out, str(table), "--plot", "x.svg", code=2).stderr


@pytest.mark.parametrize(
    ("lines", "words", "message"),
    [
        (["20,", "21,", "22,"], [], "values are missing in 3 rows, 20 to 22; the run was trained to fill up to 2"),
        (["20,two"], [], "row 22, column 'x': got 'two', expected a number"),
        (["20,inf"], [], "row 22, column 'x': got 'inf', expected a finite number"),
        (["19,4"], [], "row 22, column 't': 19 occurs twice"),
    ],
)
def test_bad_input_is_named_and_exits_with_2(lines, words, message, tmp_path):
    good = [f"{t},{math.sin(t):.4f}" for t in range(20)]
    train, other = tmp_path / "train.csv", tmp_path / "other.csv"
    train.write_text("\n".join(["t,x", *[f"{t},{math.sin(t):.4f}" for t in range(80)]]) + "\n", encoding="utf-8")
    other.write_text("\n".join(["t,x", *good, *lines, "23,0.5"]) + "\n", encoding="utf-8")
    rc.train(str(train), task="fill", gap=2, context=4, width=4, budget="1steps", out=tmp_path / "run")
    done = ask("predict", str(tmp_path / "run"), str(other), *words, code=2)
    assert message in done.stderr


def test_data_that_are_too_short_are_named_with_what_is_missing(tmp_path):
    message = "a gap of 4 rows and 30 rows of context need 34 rows of values in the valid part, which has 24"
    with pytest.raises(ValueError, match=message):
        rc.train("seasons", task="fill", context=30, out=tmp_path / "run")


def test_one_sided_filling_reads_nothing_after_the_gap(tmp_path):
    run = rc.train(
        "seasons", task="fill", sides="before", gap=3, context=8, width=8, budget="2steps", out=tmp_path / "r"
    )
    windows = run.dataset().test.gather(np.zeros(1, dtype=np.int64))
    batch = hide(windows, middle_gap(windows, 3), is_open=True)
    assert not batch.observed[:, 8:].any()
    with torch.no_grad():
        whole = run.model.estimate(batch.values, batch.observed)[:, 8:11]
        cut = run.model.estimate(batch.values[:, :11], batch.observed[:, :11])[:, 8:]
    torch.testing.assert_close(whole, cut)
