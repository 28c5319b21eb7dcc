"""The filters, against plain definitions in numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays

from recollect.core.validate import ContractError
from recollect.generation.filters import (
    apply_filters,
    check_logits,
    draw,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    prohibit,
    scale_by_temperature,
)
from recollect.generation.settings import Settings

# Integers make ties; eighths make sums exact.
LOGITS = st.integers(1, 12).flatmap(
    lambda size: arrays(np.float64, (3, size), elements=st.integers(-6, 6).map(lambda i: i / 2))
)
SHARE = st.floats(0.01, 1.0)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def kept(t: torch.Tensor) -> np.ndarray:
    return np.isfinite(t.numpy())


def probabilities(t: torch.Tensor) -> np.ndarray:
    return t.softmax(-1).numpy()


@given(LOGITS, st.integers(1, 15))
def test_top_k_keeps_the_k_largest_and_their_equals(x, k):
    found = keep_top_k(torch.from_numpy(x), k)
    kth = np.sort(x, axis=-1)[:, ::-1][:, min(k, x.shape[1]) - 1 : min(k, x.shape[1])]
    np.testing.assert_array_equal(kept(found), x >= kth)


@given(LOGITS)
def test_top_k_of_all_is_the_identity(x):
    t = torch.from_numpy(x)
    assert torch.equal(keep_top_k(t, x.shape[1]), t)
    assert torch.equal(keep_top_k(t, x.shape[1] + 5), t)


@given(LOGITS, SHARE)
def test_top_p_keeps_the_smallest_set_that_reaches_p(x, p):
    found = kept(keep_top_p(torch.from_numpy(x), p))
    for row, probability in zip(found, softmax(x), strict=True):
        inside = probability[row]
        assert inside.sum() >= p - 1e-12
        assert inside.sum() - inside.min() < p + 1e-12  # without its least likely it would not reach p
        assert not (~row).any() or inside.min() >= probability[~row].max() - 1e-12


@given(LOGITS, SHARE)
def test_top_p_is_transformers_warper_where_nothing_ties(x, p):
    # Scores that fall by rank: TopPLogitsWarper sorts upwards and drops what sums to at most 1 - p.
    x = x + np.linspace(0, 0.3, x.shape[1])
    found = kept(keep_top_p(torch.from_numpy(x), p))
    for row, scores in zip(found, x, strict=True):
        order = np.argsort(scores, kind="stable")
        cumulative = np.cumsum(softmax(scores)[order])
        drop = cumulative <= 1 - p
        drop[-1] = False
        if np.abs(cumulative - (1 - p)).min() > 1e-9:  # rounding decides at the border
            np.testing.assert_array_equal(row[order], ~drop)


def test_top_p_keeps_lower_ids_among_equals():
    found = kept(keep_top_p(torch.zeros(1, 8), 0.5))
    np.testing.assert_array_equal(found, [[True] * 4 + [False] * 4])


@given(LOGITS, st.floats(0.0, 1.0))
def test_min_p_keeps_what_is_likely_beside_the_likeliest(x, p):
    found = kept(keep_min_p(torch.from_numpy(x), p))
    ratio = softmax(x) / softmax(x).max(-1, keepdims=True)
    clear = np.abs(ratio - p) > 1e-12
    np.testing.assert_array_equal(found[clear], (ratio >= p)[clear])
    assert found.any(-1).all()


@given(LOGITS, st.floats(0.1, 5.0))
def test_temperature_divides(x, temperature):
    found = scale_by_temperature(torch.from_numpy(x), temperature)
    np.testing.assert_allclose(found.numpy(), x / temperature, rtol=1e-12)


@given(LOGITS, SHARE, st.integers(1, 12), st.floats(0.0, 0.9), st.floats(0.2, 3.0))
def test_what_is_kept_is_renormalised(x, top_p, top_k, min_p, temperature):
    settings = Settings(top_p=top_p, top_k=top_k, min_p=min_p, temperature=temperature)
    left = apply_filters(torch.from_numpy(x), settings)
    whole, inside = softmax(x / temperature), kept(left)
    wanted = np.where(inside, whole, 0)
    np.testing.assert_allclose(probabilities(left), wanted / wanted.sum(-1, keepdims=True), atol=1e-12)
    likeliest = x.argmax(-1)
    assert inside[np.arange(len(x)), likeliest].all()


@given(LOGITS, st.floats(0.0, 1.0, exclude_max=True))
def test_a_draw_is_the_inverse_of_the_cumulative_distribution(x, u):
    x[:, : x.shape[1] // 2] = np.where(x[:, : x.shape[1] // 2] > 2, -np.inf, x[:, : x.shape[1] // 2])
    ids = draw(torch.from_numpy(x), [u] * 3).numpy()
    for row, i in zip(softmax(x), ids, strict=True):
        assert row[i] > 0
        assert row[:i].sum() <= u + 1e-12
        assert row[: i + 1].sum() >= u - 1e-12


def test_draws_follow_the_probabilities():
    logits = torch.tensor([[0.1, 0.2, 0.3, 0.4]]).log()
    u = (torch.arange(1000, dtype=torch.float64) + 0.5) / 1000
    counts = draw(logits.expand(1000, -1), u.tolist()).bincount(minlength=4)
    assert counts.tolist() == [100, 200, 300, 400]


def test_the_largest_uniform_number_is_an_id():
    below_one = torch.tensor([np.nextafter(1.0, 0.0)], dtype=torch.float64)
    assert draw(torch.zeros(1, 3), below_one.tolist()).item() == 2
    assert draw(torch.tensor([[0.0, 0.0, -torch.inf]]), below_one.tolist()).item() == 1


def test_prohibited_ids_are_dropped():
    assert kept(prohibit(torch.zeros(2, 4), [1, 3])).tolist() == [[True, False, True, False]] * 2


def test_nan_and_nothing_left_are_refused():
    rows = torch.tensor([True, True])
    with pytest.raises(ContractError, match="row 1: got NaN"):
        check_logits(torch.tensor([[0.0, 1.0], [0.0, torch.nan]]), rows)
    with pytest.raises(ContractError, match="row 0: got no id that may be chosen"):
        check_logits(torch.full((2, 2), -torch.inf), rows)
    check_logits(torch.full((2, 2), torch.nan), ~rows)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"tokens": -1}, "tokens: got -1, expected a whole number, at least 0"),
        ({"tokens": 2.5}, "tokens: got 2.5"),
        ({"temperature": 0}, "temperature: got 0, expected more than 0; greedy=True"),
        ({"temperature": float("nan")}, "temperature: got nan"),
        ({"top_k": 0}, "top_k: got 0"),
        ({"top_p": 0.0}, "top_p: got 0.0, expected more than 0 and at most 1"),
        ({"top_p": 1.5}, "top_p: got 1.5"),
        ({"min_p": -0.1}, "min_p: got -0.1, expected 0 to 1"),
        ({"seed": -1}, "seed: got -1"),
        ({"stop": 3}, "stop: got 3, expected a list of ids"),
        ({"stop": "ab"}, "stop: got 'ab', expected a list of ids"),
        ({"prohibited": [-1]}, "prohibited: got -1"),
        ({"begin": True}, "begin: got True"),
    ],
)
def test_settings_refuse_with_the_reason(wrong, message):
    with pytest.raises(ContractError) as caught:
        Settings(**wrong)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("temperature", [1e-7, 1e-40, 1e-300, 5e-324])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_at_the_lowest_temperatures_the_likeliest_is_drawn(temperature, dtype):
    logits = torch.tensor([[-200.0, -3.0, -torch.inf, -1.0], [90.0, 80.0, 0.0, 0.0]], dtype=dtype)
    kept = apply_filters(logits, Settings(temperature=temperature, top_p=0.9, min_p=0.1))
    assert draw(kept, [0.0, 0.999]).tolist() == [3, 0]
