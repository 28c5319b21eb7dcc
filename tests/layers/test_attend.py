"""Attention of every score and alignment: what is remembered, what is seen, and what must not be."""

from __future__ import annotations

import itertools

import pytest
import torch
from attention_parts import DTYPE, WIDTH, attention, check_weights, close, example, fails, poisoned

from recollect import ContractError, load_memory, record, save_memory
from recollect.layers.attention.alignment import ALIGNMENTS, Hard, score_function_loss
from recollect.layers.attention.attend import Attend
from recollect.layers.attention.score import SCORES, Additive, Dot, General

ALL = list(itertools.product(SCORES, ALIGNMENTS))


@pytest.mark.parametrize("score", SCORES)
def test_attention_is_its_definition(score):
    """c = softmax(e) V, row by row over the row's own steps."""
    q, features, valid = example()
    attend = attention(score)
    with record(attend) as seen:
        context = attend(q, attend.remember(features, valid))
    for b in range(4):
        own = features[b : b + 1][:, valid[b]]
        weights = attend.score(q[b : b + 1], attend.score.keys(own)).softmax(2)
        close(context[b : b + 1], weights @ own)
    check_weights(seen["weights"], valid)
    close(seen["context"], context)
    assert seen["scores"].shape == seen["weights"].shape == (4, 3, 7)


@pytest.mark.parametrize(("score", "alignment"), ALL)
def test_what_lies_behind_a_rows_end_changes_nothing(score, alignment):
    q, features, valid = example()
    attend = attention(score, alignment)
    results = []
    for given in (features, poisoned(features, valid)):
        given, asked = given.clone().requires_grad_(), q.clone().requires_grad_()
        context = attend(asked, attend.remember(given, valid))
        wanted = [given, asked, *attend.parameters()]
        gradients = torch.autograd.grad(context.square().sum(), wanted, allow_unused=True)
        results.append([context, *(g for g in gradients if g is not None)])
    for clean, dirty in zip(*results, strict=True):
        assert torch.equal(clean, dirty)
        assert clean.isfinite().all()
    assert (results[0][0][1] == 0).all()  # the row whose source is empty
    assert fails(close, attend(q, attend.remember(features)), results[0][0])  # a mask that is forgotten is seen


@pytest.mark.parametrize(("score", "alignment"), ALL)
def test_rows_do_not_see_each_other(score, alignment):
    q, features, valid = example()
    attend = attention(score, alignment)
    source, place = attend.remember(features, valid), torch.tensor([0, 1, 2, 3])
    whole = attend(q, source, place)
    order = torch.tensor([2, 0, 3, 3, 1])
    close(attend(q[order], source.select(order), place[order]), whole[order])
    for b in range(4):
        close(attend(q[b : b + 1], source.select([b]), place[b : b + 1]), whole[b : b + 1])


@pytest.mark.parametrize(("score", "alignment"), ALL)
def test_queries_may_come_one_by_one(score, alignment):
    q, features, valid = example()
    attend = attention(score, alignment)
    source = attend.remember(features, valid)
    steps = [attend(q[:, t : t + 1], source, torch.full((4,), t)) for t in range(3)]
    close(torch.cat(steps, 1), attend(q, source))


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize(("rows", "asked", "steps"), [(0, 3, 5), (2, 0, 5), (2, 3, 0)])
def test_nothing_is_legal(score, rows, asked, steps):
    attend = attention(score)
    source = attend.remember(torch.zeros(rows, steps, WIDTH, dtype=DTYPE))
    context = attend(torch.zeros(rows, asked, WIDTH, dtype=DTYPE), source)
    assert context.shape == (rows, asked, WIDTH)
    assert (context == 0).all()


@pytest.mark.parametrize("score", SCORES)
def test_a_source_may_be_kept(score, tmp_path):
    q, features, valid = example()
    attend = attention(score)
    source = attend.remember(features, valid)
    save_memory(source, tmp_path / "source.safetensors")
    kept = load_memory(tmp_path / "source.safetensors")
    assert kept.equals(source)
    close(attend(q, kept), attend(q, source))


def test_multi_dimensional_attention_weighs_every_feature_by_itself():
    q, features, valid = example()
    attend = attention("additive", features=WIDTH)
    with record(attend) as seen:
        context = attend(q, attend.remember(features, valid))
    check_weights(seen["weights"], valid)
    assert seen["weights"].shape == (4, 3, 7, WIDTH)
    assert seen["weights"][0].std(-1).max() > 0.01
    for f in range(WIDTH):
        close(context[..., f], torch.einsum("bts,bs->bt", seen["weights"][..., f], features[..., f]))


def test_values_may_have_a_width_of_their_own():
    q, features, valid = example()
    attend = Attend(General(WIDTH, WIDTH, dtype=DTYPE), value_width=6, dtype=DTYPE)
    plain = Attend(attend.score)
    source = attend.remember(features, valid)
    assert source.values.shape == (4, 7, 1, 6)
    close(attend(q, source), plain(q, plain.remember(features, valid)) @ attend.value.weight.T)


def test_the_same_parameters_serve_every_length():
    """The weights are computed anew for each input; what is learned are the projections."""
    attend = attention("additive")
    before = {name: p.clone() for name, p in attend.named_parameters()}
    seen = []
    for steps in (2, 9):
        with record(attend) as recording:
            attend(torch.ones(1, 1, WIDTH, dtype=DTYPE), attend.remember(torch.randn(1, steps, WIDTH, dtype=DTYPE)))
        seen.append(recording["weights"])
    assert [w.shape for w in seen] == [(1, 1, 2), (1, 1, 9)]
    assert all(torch.equal(p, before[name]) for name, p in attend.named_parameters())


def test_a_drawn_look_learns_through_its_estimator():
    """Hard attention whose loss is 0 at step 2 alone must come to look there."""
    torch.manual_seed(0)
    attend = Attend(Additive(WIDTH, WIDTH), Hard())
    features, q = torch.eye(4).expand(32, -1, -1), torch.ones(32, 1, WIDTH)
    optimiser = torch.optim.Adam(attend.parameters(), lr=0.05)
    for _ in range(60):
        look = attend.look(q, attend.remember(features))
        loss = 1 - look.context[:, :, 2]
        score_function_loss(look.log_probability, loss, loss.mean()).mean().backward()
        optimiser.step()
        optimiser.zero_grad()
    assert attend.look(q, attend.remember(features)).scores.softmax(2)[..., 2].mean() > 0.9


def test_what_does_not_fit_is_refused():
    attend = Attend(Dot(WIDTH, WIDTH))
    source = attend.remember(torch.zeros(2, 5, WIDTH))
    with pytest.raises(ContractError, match=r"q: got shape \(2, 3, 5\), expected \(B, T, 4\)"):
        attend(torch.zeros(2, 3, 5), source)
    with pytest.raises(ContractError, match="the batch of x has 3 rows"):
        attend(torch.zeros(3, 3, WIDTH), source)
    with pytest.raises(ContractError, match=r"x: got shape \(2, 5, 3\)"):
        attend.remember(torch.zeros(2, 5, 3))
    with pytest.raises(ContractError, match="valid"):
        attend.remember(torch.zeros(2, 5, WIDTH), torch.ones(2, 4, dtype=torch.bool))
    with pytest.raises(ContractError, match="score: got 3 features, expected 4"):
        Attend(Additive(WIDTH, WIDTH, features=3))
