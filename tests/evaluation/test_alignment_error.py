"""The alignment error rate, on alignments made by hand."""

from __future__ import annotations

import pytest
import torch

from recollect.evaluation.alignment_error import alignment_error_rate


def links(*pairs: tuple[int, int]) -> torch.Tensor:
    """Give one sentence of 3 target and 4 source steps with these (target, source) links."""
    made = torch.zeros(1, 3, 4, dtype=torch.bool)
    for t, s in pairs:
        made[0, t, s] = True
    return made


def test_perfect_and_wrong_everywhere():
    sure = links((0, 1), (1, 0), (2, 3))
    assert alignment_error_rate(sure.float(), sure) == 0
    assert alignment_error_rate(sure.roll(1, 2).float(), sure) == 1


def test_och_and_neys_equation_by_hand():
    """A = {(0, 1), (1, 0), (2, 2)}, S = {(0, 1), (1, 3)}, P = S ∪ {(1, 0)}: 1 − (1 + 2) / (3 + 2)."""
    weights = torch.tensor([[[0.1, 0.7, 0.1, 0.1], [0.4, 0.2, 0.1, 0.3], [0.0, 0.2, 0.5, 0.3]]])
    sure, possible = links((0, 1), (1, 3)), links((1, 0))
    assert alignment_error_rate(weights, sure, possible) == pytest.approx(1 - 3 / 5)
    assert alignment_error_rate(weights, sure, possible | sure) == pytest.approx(1 - 3 / 5)
    assert alignment_error_rate(weights, sure) == pytest.approx(1 - 2 / 5)


def test_a_link_that_is_only_possible_does_no_harm_when_it_is_missing():
    sure, possible = links((0, 1), (1, 0), (2, 3)), links((0, 2), (1, 2))
    assert alignment_error_rate(sure.float(), sure, possible) == 0


def test_steps_without_weight_link_nothing():
    sure = links((0, 1))
    assert alignment_error_rate(sure.float(), sure) == 0
    flat = torch.full((1, 3, 4), 0.25)
    assert alignment_error_rate(torch.where(sure.any(2, keepdim=True), sure.float(), flat), sure) == pytest.approx(0.5)
    assert alignment_error_rate(torch.zeros(1, 3, 4), torch.zeros(1, 3, 4, dtype=torch.bool)) == 0
    assert alignment_error_rate(torch.zeros(0, 3, 4), torch.zeros(0, 3, 4, dtype=torch.bool)) == 0


def test_another_shape_is_refused():
    with pytest.raises(
        ValueError, match=r"sure: got torch.bool of shape \(1, 3, 4\), expected bool of shape \(1, 3, 5\)"
    ):
        alignment_error_rate(torch.zeros(1, 3, 5), links())
