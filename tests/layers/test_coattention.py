"""Co-attention: two sequences, each looked at with the other in mind."""

from __future__ import annotations

import pytest
import torch
from attention_parts import DTYPE, close, fails, poisoned
from torch import Tensor

from recollect import record
from recollect.layers.attention.attend import Attend
from recollect.layers.attention.coattention import (
    AlternatingCoAttention,
    InteractiveCoAttention,
    MultiGrainedCoAttention,
    ParallelCoAttention,
    RotatoryAttention,
)
from recollect.layers.attention.score import Dot

FORMS = [ParallelCoAttention, AlternatingCoAttention, InteractiveCoAttention]


def made(kind, *widths: int):
    torch.manual_seed(0)
    return kind(*widths, dtype=DTYPE)


def pair() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Give x (4, 6, 3), y (4, 5, 4) and their masks; the second row of x and the third of y are empty."""
    torch.manual_seed(1)
    x, y = torch.randn(4, 6, 3, dtype=DTYPE), torch.randn(4, 5, 4, dtype=DTYPE)
    lengths = torch.tensor([4, 0, 6, 1]), torch.tensor([5, 2, 0, 3])
    return x, y, torch.arange(6) < lengths[0][:, None], torch.arange(5) < lengths[1][:, None]


@pytest.mark.parametrize("kind", FORMS)
def test_what_lies_behind_a_rows_end_changes_nothing(kind):
    x, y, x_valid, y_valid = pair()
    form, results = made(kind, 3, 4), []
    for given in ((x, y), (poisoned(x, x_valid), poisoned(y, y_valid))):
        given = [t.clone().requires_grad_() for t in given]
        contexts = form(*given, x_valid, y_valid)
        loss = sum(c.square().sum() for c in contexts)
        gradients = torch.autograd.grad(loss, [*given, *form.parameters()], allow_unused=True)
        results.append([*contexts, *(g for g in gradients if g is not None)])
    for clean, dirty in zip(*results, strict=True):
        assert torch.equal(clean, dirty)
        assert clean.isfinite().all()
    assert results[0][0].shape == (4, 3)
    assert results[0][1].shape == (4, 4)
    assert (results[0][0][1] == 0).all()
    assert (results[0][1][2] == 0).all()
    assert fails(close, form(x, y)[0], results[0][0])


@pytest.mark.parametrize("kind", FORMS)
def test_each_row_is_looked_at_alone_and_within_its_length(kind):
    x, y, x_valid, y_valid = pair()
    form = made(kind, 3, 4)
    whole = form(x, y, x_valid, y_valid)
    for b in (0, 3):
        own = form(x[b : b + 1][:, x_valid[b]], y[b : b + 1][:, y_valid[b]])
        for ours, theirs in zip(own, whole, strict=True):
            close(ours[0], theirs[b])


@pytest.mark.parametrize("kind", FORMS)
def test_each_side_depends_on_the_other(kind):
    x, y, _, _ = pair()
    form = made(kind, 3, 4)
    before = form(x, y)
    assert fails(close, form(x, 2 * y + 1)[0], before[0])
    assert fails(close, form(2 * x + 1, y)[1], before[1])


def test_parallel_coattention_is_lus_equations():
    """In the paper's letters, columns being steps: x is V, the picture, y is Q, the question."""
    x, y, _, _ = pair()
    form = made(ParallelCoAttention, 3, 4)
    with record(form) as seen:
        x_context, y_context = form(x, y)
    W_b, W_v, W_q = form.affinity.weight.T, form.x_hidden.weight, form.y_hidden.weight
    for b in range(4):
        V, Q = x[b].T, y[b].T
        C = torch.tanh(Q.T @ W_b @ V)
        H_v, H_q = torch.tanh(W_v @ V + (W_q @ Q) @ C), torch.tanh(W_q @ Q + (W_v @ V) @ C.T)
        a_v, a_q = (form.x_score.weight[0] @ H_v).softmax(0), (form.y_score.weight[0] @ H_q).softmax(0)
        close(seen["affinity"][b], C)
        close(seen["x_weights"][b, 0], a_v)
        close(x_context[b], V @ a_v)
        close(y_context[b], Q @ a_q)


def test_alternating_coattention_is_lus_equations():
    """x̂ = A(X; g): H = tanh(W_x X + (W_g g) 1ᵀ), a = softmax(wᵀ H); s = A(X; 0), ŷ = A(Y; s), x̂ = A(X; ŷ)."""
    x, y, _, _ = pair()
    form = made(AlternatingCoAttention, 3, 4)

    def look(attend, X, g):
        score = attend.score
        H = torch.tanh(X @ score.key.weight.T + score.query.weight @ g + score.query.bias)
        return (H @ score.out.weight[0]).softmax(0) @ X

    x_context, y_context = form(x, y)
    for b in range(4):
        s = look(form.first, x[b], torch.zeros(3, dtype=DTYPE))
        seen_y = look(form.to_y, y[b], s)
        close(y_context[b], seen_y)
        close(x_context[b], look(form.to_x, x[b], seen_y))


def test_interactive_coattention_asks_with_means():
    x, y, x_valid, y_valid = pair()
    form = made(InteractiveCoAttention, 3, 4)
    x_context, y_context = form(x, y, x_valid, y_valid)
    for b in (0, 3):
        X, Y = x[b, x_valid[b]], y[b, y_valid[b]]
        to_x, to_y = form.to_x.score.query, form.to_y.score.query
        close(x_context[b], (X @ (to_x.weight @ Y.mean(0) + to_x.bias)).softmax(0) @ X)
        close(y_context[b], (Y @ (to_y.weight @ X.mean(0) + to_y.bias)).softmax(0) @ Y)


def test_rotatory_attention_goes_round():
    torch.manual_seed(1)
    parts = [torch.randn(3, steps, 4, dtype=DTYPE) for steps in (5, 2, 6)]
    lengths = [torch.tensor([5, 0, 3]), torch.tensor([2, 1, 2]), torch.tensor([1, 6, 0])]
    masks = [torch.arange(p.shape[1]) < n[:, None] for p, n in zip(parts, lengths, strict=True)]
    form = made(RotatoryAttention, 4)
    whole = form(*(poisoned(p, m) for p, m in zip(parts, masks, strict=True)), *masks)
    assert whole.shape == (3, 16)

    def look(attend, q, X):
        return (X @ (attend.score.query.weight @ q + attend.score.query.bias)).softmax(0) @ X

    for b in range(3):
        left, target, right = (p[b, m[b]] for p, m in zip(parts, masks, strict=True))
        seen_left, seen_right = (look(a, target.mean(0), X) for a, X in ((form.left, left), (form.right, right)))
        round_trip = [seen_left, look(form.from_left, seen_left, target), look(form.from_right, seen_right, target)]
        close(whole[b], torch.cat([*round_trip, seen_right]))
    assert fails(close, form(parts[2], parts[1], parts[0], masks[2], masks[1], masks[0]), whole)


# ---- several grains ------------------------------------------------------------------------------------


def phrases() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return x (4, 6, 4), y (4, 5, 4) and their masks; the second row of x and the third of y are empty."""
    x, y, x_valid, y_valid = pair()
    return torch.cat([x, x[..., :1].sin()], dim=2), y, x_valid, y_valid


def test_multi_grained_coattention_is_its_equations():
    x, y, x_valid, y_valid = phrases()
    form = made(MultiGrainedCoAttention, 4)
    x_context, y_context = form(poisoned(x, x_valid), poisoned(y, y_valid), x_valid, y_valid)
    coarse = form.coarse(x, y, x_valid, y_valid)
    close(x_context[:, :4], coarse[0])
    close(y_context[:, :4], coarse[1])
    for b in (0, 3):
        X, Y = x[b, x_valid[b]], y[b, y_valid[b]]
        U = torch.stack([torch.stack([form.fine(torch.cat([h, q, h * q]))[0] for q in Y]) for h in X])
        close(x_context[b, 4:], U.amax(1).softmax(0) @ X)
        close(y_context[b, 4:], (U.softmax(1) @ Y).mean(0))
    assert (x_context[1] == 0).all()
    assert (y_context[2] == 0).all()


def test_either_grain_with_one_step_is_dot_product_attention():
    x, y, _, _ = phrases()
    form, single = made(MultiGrainedCoAttention, 4), Attend(Dot(4, 4))
    with torch.no_grad():
        form.fine.weight.copy_(torch.tensor([[0.0] * 8 + [1.0] * 4]))
        for side in (form.coarse.to_x, form.coarse.to_y):
            side.score.query.weight.copy_(torch.eye(4))
            side.score.query.bias.zero_()
    context = single(y[:, :1], single.remember(x)).squeeze(1)
    x_context, y_context = form(x, y[:, :1])
    close(x_context, torch.cat([context, context], dim=1))
    close(y_context, torch.cat([y[:, 0], y[:, 0]], dim=1))
    two, _ = form(x, y[:, :2])
    assert fails(close, two[:, :4], two[:, 4:])


def test_grains_have_finite_gradients_behind_a_rows_end():
    x, y, x_valid, y_valid = phrases()
    form, results = made(MultiGrainedCoAttention, 4), []
    for given in ((x, y), (poisoned(x, x_valid), poisoned(y, y_valid))):
        given = [t.clone().requires_grad_() for t in given]
        loss = sum(c.square().sum() for c in form(*given, x_valid, y_valid))
        results.append(torch.autograd.grad(loss, [*given, *form.parameters()]))
    for clean, dirty in zip(*results, strict=True):
        assert torch.equal(clean, dirty)
        assert clean.isfinite().all()
    assert form(x, y[:, :0])[0].abs().max() > 0  # nothing to compare with: the mean of x
