"""The forecaster: laws, shapes, streaming beside batch, free running, normalisation, and what is refused."""

from __future__ import annotations

import math

import pytest
import torch

import recollect as rc
from recollect.core.errors import ContractError
from recollect.laws.check import check_layer
from recollect.models import forecast_outputs as outputs
from recollect.models.forecast_config import FORECASTERS, STEPS
from recollect.models.reversible_norm import ReversibleNorm
from recollect.models.window_maps import moving_average
from tiers import slow_after

SIZE = {"channels": 2, "lookback": 30, "horizon": 3, "width": 8, "heads": 2, "mini_batch": 4, "season": 4}


def model_of(family, **options):
    torch.manual_seed(0)
    return rc.Forecaster(family, **SIZE | options).double().eval()


@pytest.mark.parametrize("family", slow_after(1, ["gru", *(f for f in FORECASTERS if f != "gru")]))
def test_every_family_keeps_the_laws(family):
    check_layer(model_of(family, lookback=5, masked=True, marks=1))


@pytest.mark.slow
@pytest.mark.parametrize("family", ["linear", "window", "lstm", "transformer"])
def test_joint_channels_keep_the_laws(family):
    check_layer(model_of(family, lookback=5, mixing="joint"))


@pytest.mark.parametrize("family", FORECASTERS)
@pytest.mark.parametrize("output", ["point", "gaussian", "quantile"])
def test_a_forecast_has_a_number_for_each_step_and_channel(family, output):
    model = model_of(family, output=output)
    raw, memory = model.forecast(torch.randn(4, 30, 2, dtype=torch.float64))
    assert raw.shape == (4, 3, 2, model.numbers)
    levels = outputs.quantiles(model.config.kind, raw)
    assert levels.shape == (4, 3, 2, 9)
    assert (levels.diff(dim=-1) >= 0).all()
    assert memory.select([0]).nbytes * 4 == memory.nbytes


STREAMED = [f for f in FORECASTERS if f not in ("naive", "seasonal-naive", "drift")]


@pytest.mark.parametrize("family", slow_after(3, sorted(STREAMED, key=lambda f: f not in ("gru", "linear", "dlinear"))))
@torch.no_grad()
def test_streaming_equals_batch_over_a_thousand_updates(family):
    model = model_of(family, channels=1)
    values = torch.randn(1, 1000, 1, dtype=torch.float64)
    batch, _ = model(values)  # the forecast after every step
    memory = None
    for step in range(1000):
        raw, memory = model.forecast(values[:, step : step + 1], memory)
        torch.testing.assert_close(raw.flatten(), batch[0, step], atol=1e-6, rtol=0)


@pytest.mark.parametrize("family", FORECASTERS)
@torch.no_grad()
def test_a_window_at_once_is_the_last_step_of_reading(family):
    model = model_of(family)
    values = torch.randn(3, 30, 2, dtype=torch.float64)
    whole, _ = model.forecast(values)
    _, memory = model.forecast(values[:, :17])
    parts, _ = model.forecast(values[:, 17:], memory)
    torch.testing.assert_close(whole, parts, atol=1e-9, rtol=0)


@pytest.mark.parametrize("family", ["linear", "window", "lstm", "transformer"])
@torch.no_grad()
def test_free_running_reads_its_own_predictions(family):
    model = model_of(family, ahead="free", horizon=4, marks=1)
    values, calendar = torch.randn(2, 30, 2).double(), torch.randn(2, 34, 1).double()
    found, _ = model.forecast(values, calendar=calendar)
    for step in range(4):
        x = model.inputs(values, None, calendar[:, : values.shape[1]])
        following = model(x)[0][:, -1:].unflatten(2, (2, 1))
        torch.testing.assert_close(found[:, step : step + 1], following)
        values = torch.cat([values, following[..., 0]], dim=1)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"normalise": "instance"}, "normalise=instance needs the whole window"),
        ({"segment": 6}, "segment=6 needs"),
        ({"head": "all"}, "head=all needs the whole window"),
        ({"bypass": "linear"}, "bypass=linear needs the whole window"),
    ],
)
def test_streaming_is_refused_where_the_window_is_needed(options, reason):
    model = model_of("gru", **options)
    assert not model.streams
    with pytest.raises(ContractError, match=reason):
        model(torch.randn(1, 30, 2, dtype=torch.float64))
    with pytest.raises(ContractError, match=reason):
        model.forecast(torch.randn(1, 1, 2).double(), model.initial_memory(1, torch.zeros(0).double()))


@pytest.mark.parametrize("family", ["linear", "nlinear", "dlinear", "window"])
def test_windows_stream_although_they_are_normalised(family):
    options = {} if family == "nlinear" else {"normalise": "instance"}
    assert model_of(family, **options).streams


def test_instance_normalisation_makes_level_and_scale_irrelevant():
    model = model_of("lstm", normalise="instance", segment=5)
    x = torch.randn(2, 30, 2).double()
    raw, moved = model.forecast(x)[0], model.forecast(1000 + 10 * x)[0]
    torch.testing.assert_close(moved, 1000 + 10 * raw, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mixing", ["independent", "joint"])
def test_a_head_of_all_states_reads_each_of_them(mixing):
    model = model_of("transformer", head="all", segment=7, mixing=mixing)  # 4 segments of the newest 28 rows
    x = torch.randn(2, 30, 2).double().requires_grad_()
    raw, _ = model.forecast(x)
    assert raw.shape == (2, 3, 2, 1)
    states = []
    model.body.register_forward_hook(lambda layer, given, found: states.append(found[0]))
    model.forecast(x)[0].sum().backward()
    folded = states[0].flatten(1)  # (rows, 4 · 8)
    expected = model.head(folded)
    found = raw.flatten(1) if mixing == "joint" else raw[..., 0].permute(2, 0, 1).flatten(0, 1)
    torch.testing.assert_close(found, expected)
    assert (x.grad[:, :2] == 0).all()
    assert (x.grad[:, 2:] != 0).all()
    with pytest.raises(ContractError, match="got 29 rows, expected 30, the lookback, where head=all"):
        model.forecast(x[:, 1:])


@pytest.mark.parametrize("mixing", ["independent", "joint"])
@torch.no_grad()
def test_a_bypass_adds_a_linear_map_of_the_window(mixing):
    model = model_of("gru", bypass="linear", mixing=mixing, normalise="instance")
    linear = model_of("linear", mixing=mixing, normalise="instance")
    linear.map.linear.load_state_dict(model.bypass.state_dict())
    linear.norm.load_state_dict(model.norm.state_dict())
    for tensor in model.head.parameters():
        tensor.zero_()  # then nothing but the bypass is left
    x = torch.randn(2, 30, 2).double()
    torch.testing.assert_close(model.forecast(x)[0], linear.forecast(x)[0])


def test_normalisation_is_undone():
    norm = ReversibleNorm(3).double()
    with torch.no_grad():
        norm.gain.copy_(torch.tensor([0.5, 2.0, 1.0]))
        norm.bias.copy_(torch.tensor([1.0, -1.0, 0.0]))
    x = torch.randn(4, 20, 3).double() * 7 + 3
    normal, shift, scale = norm(x)
    torch.testing.assert_close(normal * scale + shift, x, atol=1e-6, rtol=1e-6)


def test_missing_values_do_not_count_in_the_normalisation():
    x = torch.randn(2, 20, 1).double()
    observed = torch.ones(2, 20, 1, dtype=torch.bool)
    observed[:, ::3] = False
    spoiled = torch.where(observed, x, 1e6)
    for ours, theirs in zip(ReversibleNorm(1)(x, observed), ReversibleNorm(1)(spoiled, observed), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_the_moving_average_repeats_its_ends():
    values = torch.arange(40.0)[None]
    found = moving_average(values)
    assert found[0, 20].item() == pytest.approx(20)
    assert found[0, 0].item() == pytest.approx(sum(max(n, 0) for n in range(-12, 13)) / 25)


def test_naive_families_predict_what_they_say():
    x = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 9.0]).double().view(1, 6, 1)
    shape = {"channels": 1, "lookback": 6, "horizon": 3, "season": 2}
    values = {name: model_of(name, **shape).forecast(x)[0].flatten().tolist() for name in rc_naive}
    assert values == {"naive": [9, 9, 9], "seasonal-naive": [5, 9, 5], "drift": pytest.approx([10.6, 12.2, 13.8])}


rc_naive = ("naive", "seasonal-naive", "drift")


def test_losses_are_those_of_their_distributions():
    y = torch.tensor([0.3]).double()
    raw = torch.tensor([[0.1, 0.4]]).double()
    normal = torch.distributions.Normal(0.1, math.exp(0.4))
    torch.testing.assert_close(outputs.loss("gaussian", raw, y), -normal.log_prob(y))
    levels = outputs.quantiles("gaussian", raw)[0]
    torch.testing.assert_close(levels, normal.icdf(torch.tensor(outputs.LEVELS).double()))
    placed = outputs.place("gaussian", raw, torch.tensor([5.0]).double(), torch.tensor([2.0]).double())
    torch.testing.assert_close(outputs.quantiles("gaussian", placed)[0], 2 * levels + 5)


def test_a_mask_channel_lets_missing_values_matter():
    model = model_of("gru", masked=True)
    x, observed = torch.randn(1, 30, 2).double(), torch.ones(1, 30, 2, dtype=torch.bool)
    hidden = observed.clone()
    hidden[:, 20:] = False
    assert not torch.allclose(model.forecast(x, observed=observed)[0], model.forecast(x, observed=hidden)[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"segment": 31}, "segment: got 31, expected at most the lookback"),
        ({"segment": 2, "ahead": "free"}, "segment: got 2, expected 1 where ahead=free"),
        ({"normalise": "last", "ahead": "free"}, "normalise: got last, expected none where ahead=free"),
        ({"head": "all", "ahead": "free"}, "head: got all, expected last where ahead=free"),
        ({"bypass": "linear", "ahead": "free"}, "bypass: got linear, expected none where ahead=free"),
        ({"horizon": 0}, "horizon: got 0, expected at least 1"),
    ],
)
def test_settings_that_contradict_each_other(options, message):
    with pytest.raises(ContractError, match=message):
        model_of("gru", **options)


def test_the_families_of_steps_take_a_layer_of_ones_own():
    name = rc_register(lambda width: rc.GRU(width, width))
    model = model_of(name)
    assert model.forecast(torch.randn(1, 5, 2).double())[0].shape == (1, 3, 2, 1)
    assert set(STEPS) < set(FORECASTERS)


def rc_register(make):
    from recollect.models.own import register_layer

    return register_layer(make, "tests:OwnGRU")
