"""Scores: each is its equation, and each becomes the next under the condition that the survey names."""

from __future__ import annotations

import pytest
import torch
from attention_parts import DTYPE, PARAMETRIC, WIDTH, close, example, fails

from recollect.layers.attention.score import SCORES, Additive, make_score


def scores_of(score, q, features):
    return score(q, score.keys(features))


def made(name: str, **options):
    torch.manual_seed(0)
    score = make_score(name, WIDTH, WIDTH, **options).double()
    with torch.no_grad():
        for p in score.parameters():
            p.normal_()
    return score


def looped(e, q, features):
    """Score pair by pair."""
    B, T, S = len(q), q.shape[1], features.shape[1]
    pairs = [e(q[b, t], features[b, s]) for b in range(B) for t in range(T) for s in range(S)]
    return torch.stack(pairs).reshape(B, T, S)


def equation(name, score):
    """Give e(q, k) for two vectors, from the paper and the score's parameters."""
    if name == "additive":
        w, q, k = score.out.weight[0], score.query, score.key.weight
        return lambda a, b: w @ torch.tanh(q.weight @ a + q.bias + k @ b)
    if name in ("general", "biased-general", "activated-general"):
        bias = score.query.bias if name == "biased-general" else 0
        plain = lambda a, b: b @ (score.query.weight @ a + bias)  # noqa: E731
        return plain if name != "activated-general" else lambda a, b: torch.tanh(plain(a, b) + score.bias)
    return {
        "dot": lambda a, b: a @ b,
        "scaled": lambda a, b: a @ b / WIDTH**0.5,
        "cosine": lambda a, b: a @ b / (a.norm() * b.norm()),
        "distance": lambda a, b: -(a - b).norm(),
    }[name]


@pytest.mark.parametrize("name", SCORES)
def test_a_score_is_its_equation_pair_by_pair(name):
    q, features, _ = example()
    score = made(name)
    expected = looped(equation(name, score), q, features)
    assert expected.shape == (4, 3, 7)
    close(scores_of(score, q, features), expected)
    assert fails(close, scores_of(score, q, features), expected.roll(1, 2))


@pytest.mark.parametrize("name", PARAMETRIC)
def test_every_parameter_matters(name):
    q, features, _ = example()
    score = made(name, **({"learned": True} if name in ("cosine", "distance") else {}))
    gradients = torch.autograd.grad(scores_of(score, q, features).square().sum(), list(score.parameters()))
    assert gradients
    assert all(g.abs().max() > 1e-3 for g in gradients)


@pytest.mark.parametrize("name", ["additive", "general", "biased-general", "activated-general"])
def test_queries_and_keys_may_differ_in_width(name):
    score = make_score(name, 3, 5)
    assert score(torch.randn(2, 6, 3), score.keys(torch.randn(2, 4, 5))).shape == (2, 6, 4)


@pytest.mark.parametrize("name", ["dot", "scaled", "cosine", "distance"])
def test_scores_without_a_matrix_refuse_unequal_widths(name):
    with pytest.raises(ValueError, match="expected 5, the key_width; or use score 'general'"):
        make_score(name, 3, 5)


def test_general_with_the_identity_is_dot():
    q, features, _ = example()
    general = made("general")
    assert fails(close, scores_of(general, q, features), scores_of(made("dot"), q, features))
    torch.nn.init.eye_(general.query.weight)
    close(scores_of(general, q, features), scores_of(made("dot"), q, features))


def test_biased_general_without_its_bias_is_general():
    q, features, _ = example()
    biased, general = made("biased-general"), made("general")
    with torch.no_grad():
        general.query.weight.copy_(biased.query.weight)
        assert fails(close, scores_of(biased, q, features), scores_of(general, q, features))
        biased.query.bias.zero_()
    close(scores_of(biased, q, features), scores_of(general, q, features))


def test_activated_general_with_the_identity_is_general_and_a_number():
    q, features, _ = example()
    activated, general = made("activated-general", activation="identity"), made("general")
    with torch.no_grad():
        general.query.weight.copy_(activated.query.weight)
    close(scores_of(activated, q, features), scores_of(general, q, features) + activated.bias)
    relu = made("activated-general", activation="relu")
    close(scores_of(relu, q, features), scores_of(activated, q, features).clamp(min=0))


def test_scaled_is_dot_over_the_root_of_the_width():
    q, features, _ = example()
    close(scores_of(made("scaled"), q, features), scores_of(made("dot"), q, features) / WIDTH**0.5)


def test_luongs_concat_is_the_additive_score():
    """wᵀ tanh(W [q; k]) with W = [W_1, W_2]."""
    q, features, _ = example()
    additive = made("additive", bias=False)
    both = torch.cat([q[:, :, None].expand(-1, -1, 7, -1), features[:, None].expand(-1, 3, -1, -1)], dim=3)
    joined = torch.cat([additive.query.weight, additive.key.weight], dim=1)
    close(scores_of(additive, q, features), torch.tanh(both @ joined.T) @ additive.out.weight[0])


def test_cosine_knows_directions_alone_and_a_zero_vector_is_like_nothing():
    q, features, _ = example()
    cosine = made("cosine", temperature=0.1)
    close(scores_of(cosine, 3 * q, 7 * features), scores_of(cosine, q, features))
    assert scores_of(cosine, q, features).abs().max() <= 10
    empty = torch.zeros(4, 7, WIDTH, dtype=DTYPE, requires_grad=True)
    assert (scores_of(cosine, q, empty) == 0).all()
    (gradient,) = torch.autograd.grad(scores_of(cosine, q, empty).sum(), empty)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("name", ["cosine", "distance"])
def test_a_learned_temperature_begins_where_it_is_told(name):
    q, features, _ = example()
    fixed, learned = (make_score(name, WIDTH, WIDTH, temperature=0.2, learned=is_one) for is_one in (False, True))
    close(scores_of(fixed, q, features), scores_of(learned.double(), q, features))
    close(scores_of(fixed, q, features), 5 * scores_of(made(name), q, features))
    assert [len(list(score.parameters())) for score in (fixed, learned)] == [0, 1]


def test_squared_distance_gives_nadaraya_and_watsons_weights():
    """a_s = exp(−‖q − k_s‖² / 2σ²) / Σ, with τ = 2σ²."""
    q, features, _ = example()
    score = made("distance", squared=True, temperature=2 * 0.7**2)
    kernel = torch.exp(-(q[:, :, None] - features[:, None]).square().sum(3) / (2 * 0.7**2))
    close(scores_of(score, q, features).softmax(2), kernel / kernel.sum(2, keepdim=True))


def test_a_query_on_a_key_has_a_gradient():
    """The distance has a corner there: its gradient must not be NaN."""
    score, features = made("distance"), example()[1]
    q = features[:, :3].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(scores_of(score, q, features).sum(), q)
    assert gradient.isfinite().all()


def test_multi_dimensional_scores_are_one_score_for_each_feature():
    q, features, _ = example()
    many = made("additive", features=3)
    assert scores_of(many, q, features).shape == (4, 3, 7, 3)
    for f in range(3):
        one = Additive(WIDTH, WIDTH).double()
        one.load_state_dict(many.state_dict() | {"out.weight": many.out.weight[f : f + 1]})
        close(scores_of(many, q, features)[..., f], scores_of(one, q, features))


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match=r"score: got 'additiv', expected one of additive, .*did you mean additive"):
        make_score("additiv", 3, 3)
    with pytest.raises(ValueError, match="temperature: got 0, expected a number above 0"):
        make_score("cosine", 3, 3, temperature=0)
    with pytest.raises(ValueError, match="activation: got 'swish'"):
        make_score("activated-general", 3, 3, activation="swish")
