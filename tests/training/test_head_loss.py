"""The loss that never holds its logits: as `F.cross_entropy` of the whole logits, in value and in every gradient."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings, strategies as st
from torch import nn

import recollect as rc
from recollect.data.pairs.pair_batches import PairBatch
from recollect.data.text.batches import Batch
from recollect.training import head_loss as module
from recollect.training.head_loss import head_loss, is_selected
from recollect.training.objective import IGNORED, NextSymbol


def gradients(compute, *tensors):
    total = compute()
    return total.detach(), torch.autograd.grad(total, tensors)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 30),
    st.integers(1, 40),
    st.booleans(),
    st.sampled_from([0.0, 0.1, 0.7]),
    st.integers(1, 5000),
    st.data(),
)
def test_it_is_the_cross_entropy_of_the_whole_logits(rows, symbols, has_bias, smoothing, bytes_at_once, data):
    torch.manual_seed(rows * symbols)
    head = nn.Linear(5, symbols, bias=has_bias).double()
    x = torch.randn(rows, 5, dtype=torch.float64, requires_grad=True)
    y = torch.randint(symbols, (rows,)).masked_fill(
        torch.rand(rows) < data.draw(st.sampled_from([0.0, 0.5, 1.0])), IGNORED
    )
    learned = (x, *head.parameters())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BYTES_AT_ONCE", bytes_at_once)
        found, by_chunks = gradients(lambda: 3 * head_loss(head, x, y, ignored=IGNORED, smoothing=smoothing), *learned)
    wanted, whole = gradients(
        lambda: 3 * F.cross_entropy(head(x), y, ignore_index=IGNORED, label_smoothing=smoothing, reduction="sum"),
        *learned,
    )
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(by_chunks, whole)


def test_in_reduced_precision_it_is_as_near_to_full_precision_as_whole_logits_are():
    torch.manual_seed(0)
    head = nn.Linear(32, 500)
    x = torch.randn(60, 32, requires_grad=True)
    y = torch.randint(500, (60,))
    learned = (x, *head.parameters())
    _, exact = gradients(lambda: F.cross_entropy(head(x), y, reduction="sum"), *learned)
    with torch.autocast("cpu", torch.bfloat16):
        _, whole = gradients(lambda: F.cross_entropy(head(x).float(), y, reduction="sum"), *learned)
        found, by_chunks = gradients(lambda: head_loss(head, x, y, ignored=IGNORED), *learned)
    assert found.dtype == torch.float32
    for ours, theirs, right in zip(by_chunks, whole, exact, strict=True):
        assert ours.dtype == right.dtype
        assert (ours - right).norm() <= 1.1 * (theirs - right).norm()


def text_model():
    model = rc.LanguageModel("gru", vocab_size=50, width=8, layers=1).double()
    x, y = torch.randint(50, (2, 3, 7))
    valid = torch.arange(7) < torch.tensor([[7], [4], [0]])
    return model, Batch(x, y, valid, torch.tensor([True, False, True]))


def pair_model():
    model = rc.Translator("luong", 20, 50, width=8).double()
    x, y = torch.randint(50, (2, 3, 7))
    valid = torch.arange(7) < torch.tensor([[7], [4], [1]])
    source = torch.randint(20, (3, 5))
    return model, PairBatch(source, torch.ones(3, 5, dtype=torch.bool), x, y, valid)


@pytest.mark.parametrize("make", [text_model, pair_model])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_models_learn_the_same_from_it(make, smoothing, monkeypatch):
    torch.manual_seed(1)
    model, batch = make()
    results = []
    for fewest in (51, 50):
        monkeypatch.setattr(module, "FEWEST_SYMBOLS", fewest)
        learner = deepcopy(model)
        assert is_selected(learner, batch.x) == (fewest == 50)
        loss = NextSymbol(smoothing)(learner, batch, None)
        loss.total.backward()
        results.append([loss.total.detach(), *(p.grad for p in learner.parameters())])
    torch.testing.assert_close(results[1], results[0])


def test_sharded_or_foreign_heads_are_left_to_whole_logits(monkeypatch):
    monkeypatch.setattr(module, "FEWEST_SYMBOLS", 2)
    model = rc.LanguageModel("gru", vocab_size=50, width=8, layers=1)
    x = torch.zeros(1, 1, dtype=torch.long)
    assert is_selected(model, x)
    assert not is_selected(model, x.to("meta"))
    assert not is_selected(nn.Sequential(model), x)
    nn.utils.parametrize.register_parametrization(model.head, "weight", nn.Identity())
    assert not is_selected(model, x)


def test_model_and_loss_are_one_graph_for_the_compiler(monkeypatch):
    monkeypatch.setattr(module, "FEWEST_SYMBOLS", 2)
    model, batch = text_model()
    whole = NextSymbol()(model, batch, None)
    traced = torch.compile(NextSymbol().__call__, backend="aot_eager", fullgraph=True)(model, batch, None)
    torch.testing.assert_close(traced.total, whole.total)
