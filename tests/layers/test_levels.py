"""Two levels of a source, and several representations of a step: each reduced to the simpler attention it extends."""

from __future__ import annotations

import pytest
import torch
from attention_parts import DTYPE, WIDTH, close, example, fails, poisoned

from recollect import record
from recollect.layers.attention.attend import Attend
from recollect.layers.attention.levels import AttentionViaAttention, MultiRepresentational
from recollect.layers.attention.score import Additive, Dot, ScaledDot


def via() -> AttentionViaAttention:
    torch.manual_seed(0)
    return AttentionViaAttention(Attend(ScaledDot(WIDTH, WIDTH)), Attend(Additive(2 * WIDTH, 6))).double()


def levels() -> tuple[torch.Tensor, ...]:
    """Return queries (4, 3, D), words (4, 7, D), characters (4, 9, 6) and both masks; one row is empty in each."""
    q, words, words_valid = example()
    generator = torch.Generator().manual_seed(2)
    characters = torch.randn(4, 9, 6, dtype=DTYPE, generator=generator)
    return q, words, characters, words_valid, torch.arange(9) < torch.tensor([9, 2, 0, 5])[:, None]


def test_characters_are_asked_with_what_the_words_gave():
    q, words, characters, words_valid, valid = levels()
    form = via()
    y = form(q, form.remember(words, characters, words_valid, valid))
    of_words = form.coarse(q, form.coarse.remember(words, words_valid))
    asked = torch.cat([q, of_words], dim=2)
    close(y[..., 6:], of_words)
    close(y[..., :6], form.fine(asked, form.fine.remember(characters, valid)))
    dirty = form.remember(poisoned(words, words_valid), poisoned(characters, valid), words_valid, valid)
    assert torch.equal(form(q, dirty), y)


def test_without_the_words_context_it_is_attention_to_the_characters():
    q, words, characters, _, _ = levels()
    form, single = via(), Attend(Additive(WIDTH, 6)).double()
    before = form(q, form.remember(words, characters))[..., :6]
    score = form.fine.score
    with torch.no_grad():
        score.query.weight[:, WIDTH:] = 0
        single.score.query.weight.copy_(score.query.weight[:, :WIDTH])
        single.score.query.bias.copy_(score.query.bias)
        single.score.key.weight.copy_(score.key.weight)
        single.score.out.weight.copy_(score.out.weight)
    alone = single(q, single.remember(characters))
    close(form(q, form.remember(words, characters))[..., :6], alone)
    assert fails(close, before, alone)


def test_representations_are_weighted_step_by_step():
    generator = torch.Generator().manual_seed(1)
    first, second = (torch.randn(4, 7, width, dtype=DTYPE, generator=generator) for width in (5, 3))
    valid = torch.arange(7) < torch.tensor([4, 0, 7, 1])[:, None]
    torch.manual_seed(0)
    mix = MultiRepresentational((5, 3), WIDTH, dtype=DTYPE)
    with record(mix) as seen:
        y = mix([poisoned(first, valid), poisoned(second, valid)], valid)
    rows = [project(x) for project, x in zip(mix.projections, (first, second), strict=True)]
    for b, t in ((0, 3), (2, 6)):
        r = torch.stack([row[b, t] for row in rows])
        weights = (r @ mix.score.weight[0]).softmax(0)
        close(seen["weights"][b, t], weights)
        close(y[b, t], weights @ r)
    assert (y.masked_select(~valid[..., None]) == 0).all()


def test_one_representation_is_its_projection_and_no_score_is_their_mean():
    _, x, _ = example()
    one = MultiRepresentational((WIDTH,), 6, dtype=DTYPE)
    close(one([x]), one.projections[0](x))
    two = MultiRepresentational((WIDTH, WIDTH), 6, dtype=DTYPE)
    weighted = two([x, x.flip(1)])
    with torch.no_grad():
        two.score.weight.zero_()
    mean = (two.projections[0](x) + two.projections[1](x.flip(1))) / 2
    close(two([x, x.flip(1)]), mean)
    assert fails(close, weighted, mean)


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="fine: got query_width 4, expected 8: the query and coarse's context"):
        AttentionViaAttention(Attend(Dot(4, 4)), Attend(Dot(4, 4)))
    with pytest.raises(ValueError, match="representations: got 1, expected 2"):
        MultiRepresentational((4, 4), 4)([torch.zeros(1, 2, 4)])
    with pytest.raises(ValueError, match="widths: got none"):
        MultiRepresentational((), 4)
