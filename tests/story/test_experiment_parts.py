"""Parts of experiments whose results are known: training that ends early, sentences as ids, ranks, least squares."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from recollect.story.claims.c50_weights_and_importance import _tau
from recollect.story.claims.c70_learned_features import _single, _solve, _together
from recollect.story.fitting import fit
from recollect.story.sentences import as_ids, numbers_of


@pytest.mark.parametrize(("enough", "expected"), [(None, 50), (0.5, 50), (1.5, 1)])
def test_training_ends_once_the_loss_is_low_enough(enough, expected):
    model, losses = nn.Linear(1, 1), []

    def loss():
        losses.append(1.0)
        return 1.0 + 0 * model.weight.sum()

    fit(model, loss, 50, enough=enough)
    assert len(losses) == expected


def test_one_low_loss_does_not_end_a_training():
    model, losses = nn.Linear(1, 1), []

    def loss():
        losses.append(0.0 if len(losses) == 5 else 1.0)
        return losses[-1] + 0 * model.weight.sum()

    fit(model, loss, 20, enough=0.5)
    assert len(losses) == 20


def test_sentences_become_ids_with_padding():
    numbers = numbers_of([["b", "a"], ["c"]], first=1)
    assert numbers == {"a": 1, "b": 2, "c": 3}
    ids, valid = as_ids([["b", "a"], ["c"]], numbers)
    assert ids.tolist() == [[2, 1], [3, 0]]
    assert valid.tolist() == [[True, True], [True, False]]


def test_kendalls_tau_is_that_of_the_ranks():
    rising = torch.tensor([0.1, 0.2, 0.3, 0.4])
    assert _tau(rising, rising**3) == pytest.approx(1)
    assert _tau(rising, -rising) == pytest.approx(-1)
    assert _tau(rising, torch.tensor([1.0, 2.0, 4.0, 3.0])) == pytest.approx(4 / 6)  # one pair of six is reversed


def test_least_squares_find_the_features_behind_ratings_and_a_mixture_is_told_from_them():
    torch.manual_seed(0)
    users, films = torch.randn(40, 2), torch.randn(30, 2)
    user, film = torch.meshgrid(torch.arange(40), torch.arange(30), indexing="ij")
    ratings = (users @ films.T).flatten()
    found = _solve(film.flatten(), users[user.flatten()], ratings, 30)
    assert torch.allclose(found, films, atol=0.05)
    turned = films @ torch.tensor([[1.0, 1.0], [-1.0, 1.0]])
    assert _single(turned, films) < 0.9 < 0.999 < _single(films, films)
    assert _together(turned, films) == pytest.approx(1, abs=1e-4)
