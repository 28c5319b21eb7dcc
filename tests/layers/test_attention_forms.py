"""Several heads, several hops: one of either is the attention alone."""

from __future__ import annotations

import pytest
import torch
from attention_parts import DTYPE, WIDTH, attention, close, example, fails, poisoned

from recollect import CrossAttention, record
from recollect.layers.attention.attend import Attend
from recollect.layers.attention.multi_head import MultiHead, MultiHop
from recollect.layers.attention.score import SCORES, Additive, Dot, ScaledDot, make_score


def heads(count: int, score: str = "scaled") -> MultiHead:
    torch.manual_seed(0)
    size = WIDTH // count
    made = MultiHead(WIDTH, [Attend(make_score(score, size, size)) for _ in range(count)]).double()
    with torch.no_grad():
        for p in made.parameters():
            p.normal_(std=0.7)
    return made


def forms() -> dict[str, MultiHead | MultiHop]:
    torch.manual_seed(0)
    hop = MultiHop(attention("additive"), 3, dtype=DTYPE)
    return {"multi-hop": hop, "multi-head": heads(2), "multi-head additive": heads(2, "additive")}


@pytest.mark.parametrize("name", forms())
def test_what_lies_behind_a_rows_end_changes_nothing(name):
    q, features, valid = example()
    form, results = forms()[name], []
    for given in (features, poisoned(features, valid)):
        given = given.clone().requires_grad_()
        context = form(q, form.remember(given, valid))
        results.append([context, *torch.autograd.grad(context.square().sum(), [given, *form.parameters()])])
    for clean, dirty in zip(*results, strict=True):
        assert torch.equal(clean, dirty)
        assert clean.isfinite().all()
    assert fails(close, form(q, form.remember(features)), results[0][0])


@pytest.mark.parametrize("name", forms())
def test_rows_do_not_see_each_other(name):
    q, features, valid = example()
    form = forms()[name]
    whole = form(q, form.remember(features, valid))
    for b in range(4):
        alone = form.remember(features[b : b + 1], valid[b : b + 1])
        close(form(q[b : b + 1], alone), whole[b : b + 1])


@pytest.mark.parametrize("score", SCORES)
def test_one_hop_is_single(score):
    q, features, valid = example()
    attend = attention(score)
    source = attend.remember(features, valid)
    close(MultiHop(attend, 1, dtype=DTYPE)(q, source), attend(q, source))
    assert fails(close, MultiHop(attend, 2, dtype=DTYPE)(q, source), attend(q, source))


def test_hops_ask_with_what_they_saw():
    """q¹ = H q + W c⁰, written out for three hops; every look is recorded."""
    q, features, valid = example()
    form = MultiHop(attention("dot"), 3, dtype=DTYPE)
    source = form.remember(features, valid)
    asked, contexts = q, []
    for _ in range(3):
        contexts.append(form.attend(asked, source))
        asked = asked @ form.again.weight.T + contexts[-1] @ form.seen.weight.T
    with record(form) as seen:
        close(form(q, source), contexts[-1])
    for ours, theirs in zip(seen.calls["attend.context"], contexts, strict=True):
        close(ours, theirs)


@pytest.mark.parametrize("score", SCORES)
def test_one_head_is_single(score):
    """Between projections that change nothing."""
    q, features, valid = example()
    form = heads(1, score)
    with torch.no_grad():
        for linear in (form.query, form.out):
            torch.nn.init.eye_(linear.weight)
            linear.bias.zero_()
        form.key_value.weight.copy_(torch.eye(WIDTH).repeat(2, 1))
        form.key_value.bias.zero_()
    single = form.heads[0]
    context = single(q, single.remember(features, valid))
    close(form(q, form.remember(features, valid)), context)
    with torch.no_grad():
        form.query.weight *= 2
    assert fails(close, form(q, form.remember(features, valid)), context) != (score == "cosine")


@pytest.mark.parametrize("count", [1, 2, 4])
def test_scaled_heads_are_cross_attention(count):
    q, features, valid = example()
    form, cross = heads(count), CrossAttention(WIDTH, count, dtype=DTYPE)
    cross.load_state_dict({name: p for name, p in form.state_dict().items() if not name.startswith("heads")})
    source = form.remember(features, valid)
    assert source.equals(cross.remember(features, valid), 1e-10)
    with record(form) as ours:
        y = form(q, source)
    with record(cross) as theirs:
        close(y, cross(q, cross.remember(features, valid))[0])
    for name in ("scores", "weights", "context"):
        allowed = valid[:, None, None].expand_as(ours["scores"]) if name == "scores" else slice(None)
        close(ours[name][allowed], theirs[name][allowed])
    with torch.no_grad():
        cross.key_value.weight.copy_(form.key_value.weight.roll(WIDTH, 0))  # keys and values taken for each other
    assert fails(close, y, cross(q, cross.remember(features, valid))[0])


def test_heads_may_differ_in_kind():
    torch.manual_seed(0)
    q, features, valid = example()
    form = MultiHead(WIDTH, [Attend(Dot(2, 2)), Attend(Additive(2, 2))]).double()
    with record(form) as seen:
        form(q, form.remember(features, valid))
    assert seen["weights"].shape == (4, 2, 3, 7)
    assert fails(close, seen["weights"][:, 0], seen["weights"][:, 1])


def test_heads_and_sources_may_differ_in_width():
    form = MultiHead(6, [Attend(ScaledDot(3, 3)) for _ in range(2)], source_width=5)
    assert form(torch.randn(2, 4, 6), form.remember(torch.randn(2, 7, 5))).shape == (2, 4, 6)


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="hops: got 0, expected at least 1"):
        MultiHop(attention(), 0)
    with pytest.raises(ValueError, match="heads: got 3, expected a number that divides the width 4"):
        MultiHead(4, [Attend(Dot(1, 1))] * 3)
    with pytest.raises(ValueError, match=r"heads\[1\]: got widths \(2, 2, 2, 3\)"):
        MultiHead(4, [Attend(Dot(2, 2)), Attend(Additive(2, 2, hidden=3))])
