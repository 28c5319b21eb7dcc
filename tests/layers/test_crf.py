"""The conditional random field equals brute force over all chains up to length 5 and 4 tags."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
import torch

import recollect as rc


def chains(crf, scores):
    """Return all tag sequences (N, T), and the score of each (N,), by the definition."""
    steps = scores.shape[0]
    every = torch.tensor(list(product(range(crf.tags), repeat=steps)), dtype=torch.long).reshape(crf.tags**steps, steps)
    totals = []
    for tags in every:
        total = crf.start[tags[0]] + crf.end[tags[-1]] if steps else scores.new_zeros(())
        total = total + sum(scores[t, tag] for t, tag in enumerate(tags))
        totals.append(total + sum(crf.transitions[a, b] for a, b in pairwise(tags)))
    return every, torch.stack(totals)


def drawn(tags, steps, seed=0):
    torch.manual_seed(seed)
    crf = rc.CRF(tags).double()
    for p in crf.parameters():
        torch.nn.init.normal_(p)
    return crf, torch.randn(steps, tags, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize(("tags", "steps"), [(k, t) for k in (1, 2, 3, 4) for t in range(6)])
def test_partition_gradients_marginals_and_best_equal_brute_force(tags, steps):
    crf, scores = drawn(tags, steps)
    every, totals = chains(crf, scores)
    expected = totals.logsumexp(0)
    found = crf.log_partition(scores[None])[0]
    torch.testing.assert_close(found, expected)
    given = [scores, *crf.parameters()]
    ours = torch.autograd.grad(found, given, allow_unused=True, materialize_grads=True) if steps else []
    theirs = torch.autograd.grad(expected, given, allow_unused=True, materialize_grads=True) if steps else []
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)
    probability = totals.softmax(0)
    marginals = torch.stack([(every == k).double().T @ probability for k in range(tags)], -1)
    torch.testing.assert_close(crf.marginals(scores[None])[0], marginals)
    best, logprob = crf.decode(scores[None])
    assert best[0].tolist() == every[totals.argmax()].tolist()
    torch.testing.assert_close(logprob[0], totals.log_softmax(0).max())


def test_padding_changes_nothing_and_an_empty_row_is_certain():
    crf, _ = drawn(3, 1)
    lengths = torch.tensor([5, 2, 0, 4])
    valid = torch.arange(5) < lengths[:, None]
    torch.manual_seed(1)
    scores = torch.randn(4, 5, 3, dtype=torch.float64).masked_fill(~valid[..., None], 0)
    tags = torch.randint(3, (4, 5))
    logprob = crf.log_probability(scores, tags, valid)
    best, top = crf.decode(scores, valid)
    for row, length in enumerate(lengths.tolist()):
        alone = scores[row : row + 1, :length]
        torch.testing.assert_close(logprob[row], crf.log_probability(alone, tags[row : row + 1, :length])[0])
        assert best[row].tolist() == crf.decode(alone)[0][0].tolist() + [0] * (5 - length)
    assert logprob[2] == top[2] == 0
    assert not crf.marginals(scores, valid)[~valid].any()


def test_unknown_tags_are_summed_over():
    crf, scores = drawn(3, 4)
    every, totals = chains(crf, scores)
    known = torch.tensor([[True, False, True, False]])
    tags = torch.tensor([[2, 0, 1, 0]])
    fits = (every[:, 0] == 2) & (every[:, 2] == 1)
    expected = totals[fits].logsumexp(0) - totals.logsumexp(0)
    found = crf.log_probability(scores[None], tags, known=known)[0]
    torch.testing.assert_close(found, expected)
    found.backward()
    assert torch.isfinite(scores.grad).all()


def direct_partition(crf, scores, valid=None):
    """Return log Z by the forward algorithm with a logsumexp over pairs of tags at every step."""
    reached = crf.start + scores[:, 0]
    for t in range(1, scores.shape[1]):
        after = (reached[:, :, None] + crf.transitions).logsumexp(1) + scores[:, t]
        reached = after if valid is None else torch.where(valid[:, t, None], after, reached)
    return (reached + crf.end).logsumexp(1)


@pytest.mark.parametrize("spread", [1.0, 60.0, 1e4])
def test_the_partition_is_exact_whatever_the_transitions_are(spread):
    crf = rc.CRF(40)
    torch.manual_seed(0)
    for p in crf.parameters():
        torch.nn.init.uniform_(p, -spread, 0)
    scores = (10 * torch.randn(3, 12, 40)).requires_grad_()
    found, expected = crf.log_partition(scores), direct_partition(crf, scores)
    torch.testing.assert_close(found, expected, rtol=2e-6, atol=1e-5)
    given = [scores, *crf.parameters()]
    for one, other in zip(
        torch.autograd.grad(found.sum(), given), torch.autograd.grad(expected.sum(), given), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=2e-5)


def test_transitions_that_a_user_forbids_are_never_chosen():
    crf, scores = drawn(3, 5)
    with torch.no_grad():
        crf.transitions[0, 1] = -torch.inf
    tags = torch.tensor([[2, 0, 1, 0, 2]])
    assert crf.log_probability(scores[None], tags).item() == -torch.inf
    torch.testing.assert_close(crf.log_partition(scores[None]), direct_partition(crf, scores[None]))
    assert not any((a, b) == (0, 1) for a, b in pairwise(crf.decode(scores[None])[0][0].tolist()))


def test_tags_that_are_all_known_are_those_of_no_mask():
    crf, scores = drawn(3, 4)
    tags, valid = torch.tensor([[2, 0, 1, 0]]), torch.tensor([[True, True, True, False]])
    whole = crf.log_probability(scores[None], tags, valid)
    torch.testing.assert_close(crf.log_probability(scores[None], tags, valid, known=valid), whole)
