"""Dot products of tastes and features: the equations, and what is learned from ratings alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import recollect as rc
from recollect.data.ratings.ratings import load_ratings
from recollect.data.synthetic.tastes import GENRES, NOISE, hidden_tastes
from recollect.evaluation.ranking_metrics import mean_reciprocal_rank, ranks_of, recall_at


def test_a_rating_is_mean_biases_and_dot_product():
    model = rc.Recommender("factors", users=4, items=5, mean=3.0, width=2).double()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, dtype=p.dtype, generator=torch.Generator().manual_seed(len(p))))
    user, item = torch.tensor([1, 3]), torch.tensor([4, 2])
    own = 3.0 + model.user_bias.weight[user, 0] + model.item_bias.weight[item, 0]
    own = own + torch.einsum("bd,bd->b", model.tastes.weight[user], model.features.weight[item])
    torch.testing.assert_close(model(model.pair(user, item)[None])[0][0, :, 0], own)


def test_signs_that_agree_raise_the_rating():
    model = rc.Recommender("factors", users=3, items=3, width=2, centred=False)
    with torch.no_grad():
        model.tastes.weight[1:] = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])  # loves romance; loves action
        model.features.weight[1:] = torch.tensor([[0.9, -0.8], [-0.7, 0.6]])  # a romance, an action film
    assert (model.rate_all(1)[1:] > 0).tolist() == [True, False]
    assert (model.rate_all(2)[1:] > 0).tolist() == [False, True]


def test_the_unknown_are_rated_by_what_is_known_and_stay_unknown():
    model = rc.Recommender("factors", users=3, items=3, mean=2.0, width=2)
    with torch.no_grad():
        model.item_bias.weight[2] = 0.5
    assert model(torch.tensor([[2]]))[0].item() == pytest.approx(2.5)  # user 0, item 2
    model(torch.tensor([[2]]))[0].sum().backward()
    assert not model.user_bias.weight.grad[0].any()
    assert not model.tastes.weight.grad[0].any()


def test_predictions_are_cut_to_the_range_outside_training():
    model = rc.Recommender("biases", users=2, items=2, mean=4.0, low=1.0, high=5.0)
    with torch.no_grad():
        model.user_bias.weight[1] = 3.0
    assert model(torch.tensor([[2]]))[0].item() == 7.0
    assert model.eval()(torch.tensor([[2]]))[0].item() == 5.0


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A model of tastes, trained on ratings with no word about genres."""
    folder = tmp_path_factory.mktemp("tastes") / "run"
    settings = {"width": len(GENRES), "penalty": 0.02, "rate": 0.02, "weight_decay": 0.0, "evaluate_every": 500}
    return rc.train("tastes", budget="30epochs", out=folder, **settings)


def test_tastes_are_learned_up_to_an_invertible_map(learned):
    """Held-out ratings are predicted up to their noise; features are found, but mixed: no single one is a genre."""
    scores = learned.evaluate().rows
    assert NOISE < scores["ratings"]["rmse"] < 1.25 * NOISE
    baselines = [one.value for one in learned.task.baselines(load_ratings("tastes"))]
    assert scores["ratings"]["rmse"] < min(baselines) / 3
    films = learned.assets["items"].names
    found = learned.model.features.weight[1:].detach().double().numpy()
    hidden = np.array(hidden_tastes(300, 200, seed=0).films)[[int(name.partition("-")[2]) for name in films[1:]]]
    inputs = np.column_stack([found, np.ones(len(found))])
    residual = hidden - inputs @ np.linalg.lstsq(inputs, hidden, rcond=None)[0]
    assert 1 - residual.var() / hidden.var() > 0.98  # a linear probe reads the genres
    single = np.abs(np.corrcoef(found.T, hidden.T)[:2, 2:]).max(1)
    assert single.mean() < 0.99


def test_ranks_count_the_others_that_are_at_least_as_good():
    scores = np.array([0.1, 0.9, 0.5, 0.5, 0.7])
    assert ranks_of(scores, [1]).tolist() == [1]
    assert ranks_of(scores, [2]).tolist() == [4]  # equal scores are no merit
    assert ranks_of(scores, [1, 4]).tolist() == [1, 1]
    assert ranks_of(np.zeros(5), [0]).tolist() == [5]
    ranks = [np.array([2, 5]), np.array([1])]
    assert mean_reciprocal_rank(ranks) == pytest.approx((1 / 2 + 1) / 2)
    assert recall_at(2, ranks) == pytest.approx((1 / 2 + 1) / 2)
