"""Following a series value by value gives what a batch of its whole past gives, in the units of the data."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import recollect as rc
from recollect.core.errors import ContractError


def followed(tmp_path, family="gru", **options):
    settings = {"horizon": 3, "lookback": 12, "budget": "3steps", "out": tmp_path / "run"} | options
    run = rc.train("seasons", model=family, **settings)
    return run, rc.ForecastStream(run.model, run.assets["series"])


@pytest.mark.parametrize("family", ["gru", "dlinear"])
def test_a_stream_equals_a_batch(family, tmp_path):
    run, stream = followed(tmp_path, family)
    values = run.dataset().table.series[0].values[:40]
    for row in values:
        point, quantiles = stream.update(row)
    scaled = torch.from_numpy((values - stream.mean) / stream.deviation).float()[None]
    raw, _ = run.model.forecast(scaled)
    np.testing.assert_allclose(
        point, raw[0, ..., 0].detach().double().numpy() * stream.deviation + stream.mean, rtol=1e-5
    )
    assert (np.diff(quantiles, axis=-1) >= 0).all()


def errors_of(run, **options):
    """Return the mean squared errors over the test part by windows, and by following the whole series."""
    data = run.dataset()
    stream = rc.ForecastStream(run.model, run.assets["series"], **options)
    truth = data.table.series[0].values
    followed = np.array([stream.update(row)[0] for row in truth])  # (T, H, C)
    ends = data.test.starts + data.test.lookback
    after = np.array([truth[end : end + data.test.horizon] for end in ends])
    with torch.no_grad():
        raw, _ = run.model.forecast(data.test.gather(np.arange(len(ends))).x)
    by_window = raw[..., 0].double().numpy() * stream.deviation + stream.mean
    return ((by_window - after) ** 2).mean(), ((followed[ends - 1] - after) ** 2).mean()


@pytest.mark.parametrize("family", ["gru", "linear-attention", "transformer", "ttt-linear", "ttt-mlp"])
def test_a_stream_far_past_its_training_is_as_accurate_as_windows(family, tmp_path):
    options = {"horizon": 6, "lookback": 24, "width": 16, "rate": 0.005, "budget": "60steps"}
    run, stream = followed(tmp_path, family, **options)
    assert stream.carries == (family == "gru")
    by_window, by_stream = errors_of(run)
    assert by_stream < 1.1 * by_window


def test_a_memory_carried_past_the_training_of_attention_is_warned_of(tmp_path):
    options = {"horizon": 6, "lookback": 24, "width": 16, "rate": 0.005, "budget": "60steps"}
    run, _ = followed(tmp_path, "transformer", **options)
    with pytest.warns(UserWarning, match="transformer was trained on windows of 24 rows and has read more"):
        by_window, by_stream = errors_of(run, carry=True)
    assert by_stream > 1.5 * by_window  # what the warning says


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"normalise": "instance"}, "normalise=instance needs the whole window"),
        ({"calendar": True}, "calendar features"),
    ],
)
def test_a_model_that_cannot_stream_is_refused_with_the_reason(options, message, tmp_path):
    with pytest.raises(ContractError, match=message):
        followed(tmp_path, **options)


def test_wrong_values_are_refused(tmp_path):
    _, stream = followed(tmp_path)
    with pytest.raises(ContractError, match="got 2 values, expected 1, one a channel"):
        stream.update([1.0, 2.0])
    with pytest.raises(ContractError, match="got a missing value"):
        stream.update([float("nan")])
