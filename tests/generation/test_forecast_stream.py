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
