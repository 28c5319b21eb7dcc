"""The rules of a verdict, on simulated comparisons: what is equal has no winner, a planted advantage has one."""

from __future__ import annotations

import math

import numpy as np
import pytest

from recollect.comparison.audit import audit
from recollect.comparison.significance import Measured, draw, holm
from recollect.comparison.verdict import MEMORY, TIME, Conditions, cheapest, judge, sentences
from recollect.core.task import Baseline, ItemScores
from recollect.views.bilingual import Bilingual

ITEMS, SEED_SPREAD, ITEM_SPREAD = 60, 0.01, 0.3


def simulated(rng, means, seeds=3, items=ITEMS) -> list[Measured]:
    """Draw a comparison: all models see the same items, each seed moves a model's mean."""
    hard = rng.normal(0, ITEM_SPREAD, items)
    models = []
    for name, mean in means.items():
        own = [mean + rng.normal(0, SEED_SPREAD) + hard + rng.normal(0, 0.02, items) for _ in range(seeds)]
        models.append(Measured(name, [ItemScores(list(one), [1.0] * items) for one in own]))
    return models


def winners(means, times=100, **options) -> list[str | None]:
    rng = np.random.default_rng(1)
    return [judge(simulated(rng, means, **options), lower_is_better=True).winner for _ in range(times)]


def test_two_copies_of_a_model_have_no_winner():
    found = winners({"one": 2.0, "two": 2.0})
    assert found.count(None) >= 95


def test_a_planted_advantage_wins():
    found = winners({"one": 2.0, "two": 2.0 - 6 * SEED_SPREAD})
    assert found.count("two") >= 90
    assert "one" not in found


def test_many_copies_have_no_winner_either():
    found = winners(dict.fromkeys("abcdef", 2.0), times=40)
    assert found.count(None) >= 38


def test_results_do_not_depend_on_the_order_of_models():
    models = simulated(np.random.default_rng(2), {"a": 2.0, "b": 2.1, "c": 2.2})
    one, other = judge(models, True), judge(models[::-1], True)
    assert (one.best, one.winner, one.level) == (other.best, other.winner, other.level)
    assert dict(one.chances) == dict(other.chances)
    assert all(np.array_equal(one.draws.values[name], other.draws.values[name]) for name in "abc")


def test_the_direction_of_the_measure_counts():
    models = simulated(np.random.default_rng(3), {"low": 1.0, "high": 2.0})
    assert judge(models, True).winner == "low"
    assert judge(models, False).winner == "high"


def test_one_seed_shows_nothing():
    models = simulated(np.random.default_rng(4), {"a": 1.0, "b": 9.0}, seeds=1)
    judged = judge(models, True)
    assert judged.winner is None
    assert judged.level == ("a", "b")


def test_models_that_count_vary_with_the_items_only():
    items = ItemScores([1.0, 3.0], [1.0, 1.0])
    drawn = draw([Measured("markov", [items], counts=True)]).values["markov"]
    assert set(np.unique(drawn)) == {1.0, 2.0, 3.0}


def test_items_must_be_the_same_for_all():
    one, two = ItemScores([1.0], [1.0]), ItemScores([1.0, 2.0], [1.0, 1.0])
    with pytest.raises(ValueError, match="expected the same number"):
        draw([Measured("a", [one] * 2), Measured("b", [two] * 2)])


def test_draws_have_the_spread_of_the_items():
    rng = np.random.default_rng(5)
    items = ItemScores(list(rng.normal(0, 1, 400)), [1.0] * 400)
    spread = draw([Measured("a", [items], counts=True)]).values["a"].std()
    assert spread == pytest.approx(np.std(items.numerators) / math.sqrt(400), rel=0.05)


def test_holm_is_holms():
    assert holm({"c": 0.04, "a": 0.01, "b": 0.02}) == pytest.approx({"c": 0.04, "a": 0.03, "b": 0.04})
    assert holm({"a": 0.01, "b": 0.03, "c": 0.03}) == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06})
    assert holm({"a": 0.02, "b": 0.03}) == pytest.approx({"a": 0.04, "b": 0.04})
    assert holm({"a": 0.04, "b": 0.9}) == pytest.approx({"a": 0.08, "b": 0.9})
    assert holm({"a": 0.7, "b": 0.8}) == {"a": 1.0, "b": 1.0}
    assert list(holm({"b": 0.02, "a": 0.01})) == ["b", "a"]
    assert holm({}) == {}


def test_a_best_model_that_is_naive_is_not_recommended():
    models = simulated(np.random.default_rng(6), {"a": 2.0, "b": 2.5})
    assert judge(models, True, [Baseline("unigram", 3.0)]).naive is None
    judged = judge(models, True, [Baseline("uniform", 3.0), Baseline("unigram", 1.9)])
    assert judged.naive == "unigram"
    said = Conditions("loss", Bilingual("10 s", "10 秒"), 3, {"a": "2.00", "b": "2.50"})
    first = sentences(judged, said, {TIME: {"a": 1.0, "b": 0.1}})
    assert len(first) == 1
    assert "Take none of them" in first[0].en


def test_costs_choose_among_equals_and_name_what_is_lost():
    level = judge(simulated(np.random.default_rng(7), {"a": 2.0, "b": 2.0}), True)
    assert cheapest(level, {"a": 3.0, "b": 2.0}) == ("b", False)
    alone = judge(simulated(np.random.default_rng(8), {"a": 2.0, "b": 3.0, "c": 4.0}), True)
    assert alone.winner == "a"
    assert cheapest(alone, {"a": 4.0, "b": 2.0, "c": 1.0}) == ("b", True)
    assert cheapest(alone, {"a": 4.0, "b": 3.0, "c": 1.0}) == ("c", True)
    assert cheapest(alone, {"a": 4.0, "b": 3.0, "c": 3.0}) is None
    said = Conditions("loss", Bilingual("10 s", "10 秒"), 3, {"a": "2.00", "b": "3.00", "c": "4.00"})
    words = sentences(alone, said, {TIME: {"a": 4.0, "b": 2.0}, MEMORY: {"a": 1.0}})
    assert words[0].en.startswith("Take a: with 10 s it is better than every other model, at 2.00 loss")
    assert words[0].zh.startswith("选 a：")
    assert "b needs 0.5 times a's, for 3.00 instead of 2.00 loss" in words[1].en
    assert len(words) == 2


def test_no_clear_winner_is_said():
    level = judge(simulated(np.random.default_rng(7), {"a": 2.0, "b": 2.0}), True)
    said = Conditions("loss", Bilingual("10 s", "10 秒"), 3, {"a": "2.00", "b": "2.00"})
    (first,) = sentences(level, said, {})
    assert first.en.startswith("No clear winner: with 10 s, ")
    assert first.zh.startswith("没有明确的赢家：")
    (none,) = sentences(judge([], True), said, {})
    assert none.en == "No verdict: no model was measured."


# ---- the audit of the budget -------------------------------------------------------------------------


def log(steps, tokens=64, seconds=0.1):
    return [{"step": n, "tokens": n * tokens, "seconds": n * seconds} for n in steps]


@pytest.mark.parametrize(
    ("rows", "limits", "problem"),
    [
        (log(range(1, 11)), {"max_steps": 10}, ""),
        (log(range(1, 11)), {"max_tokens": 640}, ""),
        (log(range(1, 11)), {"max_seconds": 0.95}, ""),
        (log(range(5, 11)), {"max_steps": 10}, "head start"),
        (log([1, 2, 5, 6]), {"max_steps": 6}, "gap"),
        (log(range(1, 9)), {"max_steps": 10}, "ended early"),
        (log(range(1, 13)), {"max_steps": 10}, "beyond the budget"),
        (log(range(1, 15)), {"max_seconds": 0.95}, "beyond the budget"),
        ([{**row, "tokens": row["tokens"] + 10_000} for row in log(range(1, 11))], {"max_steps": 10}, "head start"),
        ([*log([1, 2]), {"step": 3, "tokens": 192, "seconds": 0.05}], {"max_steps": 3}, "backwards"),
        ([], {"max_steps": 3}, "no update"),
        (log([1]), {"max_steps": 1}, ""),
        (log([1]), {"max_tokens": 10}, "too small for one update"),
        (log([1]), {"max_seconds": 0.01}, "too small for one update"),
    ],
)
def test_a_head_start_or_stolen_seconds_are_found(rows, limits, problem):
    found = audit(rows, limits)
    assert problem in found
    assert bool(found) == bool(problem)
