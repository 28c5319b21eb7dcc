"""Alignments: weights over what is valid, the windows, and the gradients of what is drawn."""

from __future__ import annotations

import itertools

import pytest
import torch
from attention_parts import DTYPE, LENGTHS, WIDTH, check_weights, choices, close, example, fails

from recollect.layers.attention.alignment import (
    ALIGNMENTS,
    Hard,
    LocalMonotonic,
    LocalPredictive,
    Reinforced,
    Soft,
    make_alignment,
    score_function_loss,
    softmax_over,
)

NORMALISED = [name for name in ALIGNMENTS if name not in ("local-predictive", "reinforced")]
FEATURES = [None, 3]


def drawn(features: int | None = None) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(4, 3, 7, *([features] if features else []), dtype=DTYPE)


def made(name: str, **options):
    torch.manual_seed(0)
    return make_alignment(name, **(choices(name) | options)).double()


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("is_training", [True, False])
@pytest.mark.parametrize("name", NORMALISED)
def test_weights_sum_to_one_over_the_valid_steps(name, is_training, features):
    q, _, valid = example()
    weights = made(name).train(is_training)(drawn(features), valid, q)
    check_weights(weights, valid)
    assert fails(check_weights, weights.roll(1, 2), valid)


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("is_training", [True, False])
def test_weights_of_a_drawn_subset_sum_to_one_or_are_zero(is_training, features):
    q, _, valid = example()
    weights = made("reinforced", offset=-1.0).train(is_training)(drawn(features), valid, q)
    total = weights.sum(2)
    assert ((total - 1).abs() < 1e-12).any()
    assert (total == 0).any()
    assert (((total - 1).abs() < 1e-12) | (total == 0)).all()
    assert (weights[1] == 0).all()
    assert (weights.transpose(1, 2)[~valid] == 0).all()


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("name", ALIGNMENTS)
def test_what_lies_behind_a_rows_end_changes_nothing(name, features):
    q, _, valid = example()
    alignment, scores = made(name), drawn(features).requires_grad_()
    wanted = [scores, *alignment.parameters()]
    mask = valid[:, None, :, None] if features else valid[:, None]
    results = []
    for behind in (0.0, torch.nan, torch.inf):
        torch.manual_seed(1)
        filled = torch.where(mask, scores, behind)
        weights, log_probability = alignment.align(filled, valid, q, None)
        total = (weights * torch.arange(7.0, dtype=DTYPE).reshape(7, *[1] * (weights.dim() - 3))).sum()
        gradients = torch.autograd.grad(total + log_probability.sum() + 0 * scores.sum(), wanted)
        results.append((weights, log_probability, *gradients))
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            assert torch.equal(a, b)
            assert a.isfinite().all()


@pytest.mark.parametrize("name", ALIGNMENTS)
@pytest.mark.parametrize("shape", [(0, 3, 7), (2, 0, 7), (2, 3, 0)])
def test_nothing_may_be_empty_or_everything(name, shape):
    scores, q = torch.zeros(shape, dtype=DTYPE), torch.zeros(*shape[:2], WIDTH, dtype=DTYPE)
    for is_training in (True, False):
        assert made(name).train(is_training)(scores, None, q).shape == shape


@pytest.mark.parametrize("name", ALIGNMENTS)
def test_rows_do_not_see_each_other(name):
    q, _, valid = example()
    alignment, scores = made(name).eval(), drawn()
    whole = alignment(scores, valid, q)
    for i in range(4):
        close(whole[i : i + 1], alignment(scores[i : i + 1], valid[i : i + 1], q[i : i + 1]))
        short = max(int(LENGTHS[i]), 1)
        close(
            whole[i : i + 1, :, :short], alignment(scores[i : i + 1, :, :short], valid[i : i + 1, :short], q[i : i + 1])
        )


def test_soft_is_monotone_in_the_scores():
    weights = Soft()(drawn(), None, example()[0])
    assert torch.equal(weights.argsort(2), drawn().argsort(2))
    close(weights[..., 0] / weights[..., 1], (drawn()[..., 0] - drawn()[..., 1]).exp())


# ---- windows ---------------------------------------------------------------------------------------


def test_a_window_as_wide_as_the_source_is_soft():
    q, _, valid = example()
    soft = Soft()(drawn(), valid, q)
    close(LocalMonotonic(7)(drawn(), valid, q), soft)
    assert fails(close, LocalMonotonic(2)(drawn(), valid, q), soft)
    close(LocalPredictive(WIDTH, 10**8, dtype=DTYPE)(drawn(), valid, q), soft)
    assert fails(close, LocalPredictive(WIDTH, 3, dtype=DTYPE)(drawn(), valid, q), soft)


def test_monotonic_windows_follow_the_target_and_stay_at_the_end():
    q, _, _ = example()
    valid = torch.arange(7) < torch.tensor([7, 7, 3, 7])[:, None]
    weights = LocalMonotonic(1)(torch.zeros(4, 3, 7, dtype=DTYPE), valid, q, torch.tensor([0, 2, 2, 50]))
    seen = [[row.nonzero()[:, 0].tolist() for row in rows] for rows in weights]
    assert seen[0] == [[0, 1], [0, 1, 2], [1, 2, 3]]
    assert seen[1] == [[1, 2, 3], [2, 3, 4], [3, 4, 5]]
    assert seen[2] == [[1, 2], [1, 2], [1, 2]]
    assert seen[3] == [[5, 6], [5, 6], [5, 6]]


def test_monotonic_windows_may_be_read_in_pieces():
    q, _, valid = example()
    alignment, place = LocalMonotonic(1), torch.tensor([1, 0, 2, 3])
    whole = alignment(drawn(), valid, q, place)
    parts = [alignment(drawn()[:, t : t + 1], valid, q[:, t : t + 1], place + t) for t in range(3)]
    assert torch.equal(whole, torch.cat(parts, 1))
    assert not torch.equal(whole, torch.cat([alignment(drawn()[:, t : t + 1], valid, q, place) for t in range(3)], 1))


def test_predicted_windows_are_luongs_equations():
    """Step by step, in the paper's letters."""
    q, _, valid = example()
    alignment, scores, D = LocalPredictive(WIDTH, 2, dtype=DTYPE), drawn(), 2
    weights = alignment(scores, valid, q)
    for b, t in itertools.product(range(4), range(3)):
        S = int(LENGTHS[b])
        p = S * torch.sigmoid(alignment.out.weight[0] @ torch.tanh(alignment.hidden.weight @ q[b, t]))
        near = [s for s in range(S) if p - D <= s <= p + D]
        below = sum(scores[b, t, s].exp() for s in near)
        expected = torch.zeros(7, dtype=DTYPE)
        for s in near:
            expected[s] = scores[b, t, s].exp() / below * torch.exp(-((s - p) ** 2) / (2 * (D / 2) ** 2))
        close(weights[b, t], expected)
    gradients = torch.autograd.grad(weights.square().sum(), list(alignment.parameters()))
    assert all(g.abs().max() > 1e-4 for g in gradients)


# ---- what is drawn ---------------------------------------------------------------------------------


def test_hard_looks_at_the_best_step_in_eval():
    q, _, valid = example()
    weights = Hard().eval()(drawn(), valid, q)
    best = drawn().masked_fill(~valid[:, None], -torch.inf).argmax(2)
    for b in (0, 2, 3):
        assert torch.equal(weights[b].argmax(1), best[b])
    assert (weights[1] == 0).all()


@pytest.mark.parametrize("estimator", ["score-function", "straight-through"])
def test_hard_at_a_temperature_near_zero_is_argmax(estimator):
    q, _, valid = example()
    weights = Hard(temperature=1e-9, estimator=estimator)(drawn(), valid, q)
    assert torch.equal(weights, Hard().eval()(drawn(), valid, q))
    torch.manual_seed(0)
    warm = Hard(estimator=estimator)(drawn(), valid, q)
    assert not torch.equal(warm, Hard().eval()(drawn(), valid, q))


def test_hard_draws_from_the_softmax():
    torch.manual_seed(0)
    scores = torch.tensor([0.5, -1.0, 2.0, 0.0], dtype=DTYPE)
    valid = torch.tensor([[True, True, True, False]])
    for temperature in (1.0, 2.0):
        many = scores.expand(1, 20_000, 4)
        share = Hard(temperature=temperature)(many, valid, many[..., :1]).mean(1)[0]
        expected = softmax_over(scores[None, None] / temperature, valid[:, None])[0, 0]
        assert (share - expected).abs().max() < 0.012  # three standard deviations of 20 000 draws
        assert (share - expected.roll(1)).abs().max() > 0.1


def expected_gradient(scores, losses, valid):
    """∇ Σ_m p(m) L(m), the thing to be estimated."""
    (gradient,) = torch.autograd.grad((softmax_over(scores, valid[:, None]) * losses).sum(), scores)
    return gradient


def enumerated_gradient(scores, losses, valid, baseline, fault=0.0):
    """The estimator's expectation, by going through every outcome."""
    alignment, total = Hard(), torch.zeros_like(scores)
    weights = softmax_over(scores, valid[:, None])[0, 0].detach()
    for m in range(int(valid.sum())):
        chosen = torch.zeros_like(scores).index_fill(2, torch.tensor(m), 1)
        log_p = alignment.log_probability(scores, chosen, valid)
        term = score_function_loss(log_p, losses[m] + scores.sum() * 0, baseline + fault * losses[m])
        total += weights[m] * torch.autograd.grad(term.sum(), scores)[0]
    return total


@pytest.mark.parametrize("baseline", [0.0, -3.7])
def test_the_score_function_estimator_is_unbiased(baseline):
    torch.manual_seed(0)
    scores = torch.randn(1, 1, 5, dtype=DTYPE, requires_grad=True)
    losses, valid = torch.randn(5, dtype=DTYPE), torch.tensor([[True, True, True, True, False]])
    expected = expected_gradient(scores, losses, valid)
    assert expected.abs().max() > 0.01
    close(enumerated_gradient(scores, losses, valid, baseline), expected)
    assert fails(close, enumerated_gradient(scores, losses, valid, baseline, fault=0.3), expected)


def test_a_drawn_look_gives_the_log_probability_of_what_it_drew():
    q, _, valid = example()
    torch.manual_seed(0)
    weights, log_probability = Hard(temperature=0.7).align(drawn(), valid, q, None)
    everything = softmax_over(drawn() / 0.7, valid[:, None].expand(-1, 3, -1))
    for b in (0, 2, 3):
        close(log_probability[b], (everything[b] * weights[b]).sum(1).log())
    assert (log_probability[1] == 0).all()


def test_a_good_baseline_lowers_the_variance():
    torch.manual_seed(0)
    p = torch.randn(6, dtype=DTYPE).softmax(0)
    losses = 5 + torch.randn(6, dtype=DTYPE)
    slopes = torch.eye(6, dtype=DTYPE) - p  # ∇ log p(m), row by row

    def variance(baseline: torch.Tensor) -> torch.Tensor:
        samples = score_function_loss(slopes, losses[:, None], baseline)
        mean = (p[:, None] * samples).sum(0)
        return (p[:, None] * (samples - mean).square()).sum()

    assert variance((p * losses).sum()) < 0.2 * variance(torch.tensor(0.0))


def test_straight_through_passes_the_gradient_of_the_noisy_softmax():
    q, _, valid = example()
    scores, values = drawn().requires_grad_(), torch.randn(7, dtype=DTYPE)
    torch.manual_seed(3)
    weights, log_probability = Hard(estimator="straight-through").align(scores, valid, q, None)
    torch.manual_seed(3)
    noise = -torch.empty_like(scores).exponential_().log()
    soft = softmax_over(scores + noise, valid[:, None].expand(-1, 3, -1))
    ours, theirs = (torch.autograd.grad((w @ values).sum(), scores)[0] for w in (weights, soft))
    close(ours, theirs)
    assert set(weights.unique().tolist()) == {0.0, 1.0}
    assert (log_probability == 0).all()


def test_the_reinforced_estimator_is_unbiased():
    """Over all 2³ subsets: the gradient of the weights and that of the drawing add up to that of the expected loss."""
    torch.manual_seed(0)
    alignment, valid = Reinforced(offset=0.3, dtype=DTYPE), torch.tensor([[True, True, True, False]])
    scores, values = torch.randn(1, 1, 4, dtype=DTYPE, requires_grad=True), torch.randn(4, dtype=DTYPE)
    wanted = [scores, *alignment.parameters()]
    expected_loss = torch.zeros((), dtype=DTYPE)
    estimate = [torch.zeros_like(t) for t in wanted]
    drawing_alone = [torch.zeros_like(t) for t in wanted]
    for bits in itertools.product([False, True], repeat=3):
        picked = torch.tensor([[[*bits, False]]])
        log_p = alignment.log_probability(scores, picked, valid)
        loss = (softmax_over(scores, picked)[0, 0] @ values).square()
        expected_loss = expected_loss + log_p.exp().sum() * loss
        term = score_function_loss(log_p, loss, 0.4).sum()
        for total, surrogate in ((estimate, loss + term), (drawing_alone, term)):
            gradients = torch.autograd.grad(surrogate, wanted, retain_graph=True, allow_unused=True)
            for t, g in zip(total, gradients, strict=True):
                t += 0 if g is None else float(log_p.detach().exp()) * g
    for ours, theirs in zip(estimate, torch.autograd.grad(expected_loss, wanted), strict=True):
        close(ours, theirs)
    assert fails(close, drawing_alone[0], estimate[0])


def test_the_policy_draws_its_bits_as_it_says():
    torch.manual_seed(0)
    alignment, scores = Reinforced(offset=0.3, dtype=DTYPE), torch.tensor([1.0, -2.0, 0.0], dtype=DTYPE)
    many = scores.expand(1, 20_000, 3)
    share = (alignment(many, None, many) > 0).double().mean(1)[0]
    assert (share - (scores + 0.3).sigmoid()).abs().max() < 0.012
    picked = alignment.eval()(scores[None, None], None, many[:, :1])[0, 0] > 0
    assert picked.tolist() == [True, False, True]


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match=r"alignment: got 'sofd', expected one of soft, .*did you mean soft"):
        make_alignment("sofd")
    with pytest.raises(ValueError, match="window: got 0, expected at least 1"):
        make_alignment("local-monotonic", window=0)
    with pytest.raises(ValueError, match="temperature: got -1, expected a number above 0"):
        make_alignment("hard", temperature=-1)
    with pytest.raises(ValueError, match="estimator: got 'magic'"):
        make_alignment("hard", estimator="magic")
