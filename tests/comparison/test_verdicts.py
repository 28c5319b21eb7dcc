"""The rules of a verdict, on simulated comparisons: what is equal has no winner, a planted advantage has one."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from recollect.comparison.audit import audit
from recollect.comparison.significance import Measured, draw, holm
from recollect.comparison.verdict import MEMORY, TIME, Conditions, cheapest, judge, sentences
from recollect.core.task import Baseline, ItemScores
from recollect.data.series.windows import Rows, SeriesWindows
from recollect.evaluation.row_blocks import block_scores
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
    values = np.random.default_rng(12).normal(2, 1, 10)
    items = ItemScores(list(values), [1.0] * 10)
    low, high = draw([Measured("markov", [items], counts=True)], count=40_000).interval("markov")
    reach = 2.2622 * values.std(ddof=1) / math.sqrt(10)  # Student's, with 9 degrees of freedom
    assert low == pytest.approx(values.mean() - reach, abs=0.06 * reach)
    assert high == pytest.approx(values.mean() + reach, abs=0.06 * reach)


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
    assert first[0].en.endswith("is not surely better than the naive row unigram.")  # a model may have its name


def measured(name, values, items=100) -> Measured:
    """Return a model with these figures of its seeds, whose items vary alike with every model."""
    hard = np.random.default_rng(13).normal(0, 0.05, items)
    hard -= hard.mean()
    return Measured(name, [ItemScores(list(value + hard), [1.0] * items) for value in values])


def in_words(models) -> dict[str, str]:
    return {m.name: f"{m.mean:.3g}" for m in models}


def told(models, costs, naive=(), lower_is_better=False) -> list[Bilingual]:
    """Return the sentences on a comparison by accuracy."""
    judged = judge(models, lower_is_better, naive)
    seeds = min(len(m.seeds) for m in models if m.name not in judged.apart)
    said = Conditions("accuracy", Bilingual("10 s", "10 秒"), seeds, in_words(models), "0.02")
    return sentences(judged, said, {TIME: costs})


def test_a_cheaper_model_is_as_good_where_its_difference_lies_within_the_tolerance():
    models = [measured("dear", [0.951, 0.952, 0.953]), measured("cheap", [0.950, 0.951, 0.952])]
    judged = judge(models, lower_is_better=False)
    assert judged.alike == ("cheap",)
    assert cheapest(judged, {"dear": 4.0, "cheap": 1.0}) == ("cheap", "as good")
    assert cheapest(judged, {"dear": 1.0, "cheap": 4.0}) is None
    words = told(models, {"dear": 4.0, "cheap": 1.0})[-1]
    assert "cheap, with 0.25 times dear's, is as good: 0.951 against 0.952 accuracy" in words.en
    assert "at most 0.02 (2% of the best)" in words.en
    assert "效果相当：0.951 对 0.952 accuracy" in words.zh


def test_not_significant_is_not_as_good():
    models = [measured("lstm", [0.90, 0.80, 0.85]), measured("rnn", [0.95, 0.50, 0.65])]
    judged = judge(models, lower_is_better=False)
    assert judged.level == ("lstm", "rnn")
    assert judged.alike == ()
    words = told(models, {"lstm": 4.0, "rnn": 1.0}, [Baseline("uniform", -1.0)])[-1]
    assert "rnn is cheaper, with 0.25 times lstm's, but not distinguished from it: 0.7 against 0.85" in words.en
    assert "未能区分：0.7 对 0.85 accuracy" in words.zh


def test_a_model_that_does_not_surely_beat_the_naive_rows_is_not_named_for_its_cost():
    models = [measured("lstm", [0.90, 0.79, 0.85]), measured("rnn", [0.80, 0.38, 0.45])]
    naive = [Baseline("majority", 0.55)]
    assert judge(models, lower_is_better=False, naive=naive).beaten == ("lstm",)
    assert len(told(models, {"lstm": 4.0, "rnn": 1.0}, naive)) == 1
    sure = [measured("lstm", [0.90, 0.90, 0.91]), measured("rnn", [0.54, 0.55, 0.54])]
    assert judge(sure, lower_is_better=False).winner == "lstm"
    assert len(told(sure, {"lstm": 4.0, "rnn": 1.0}, naive)) == 1


def test_with_one_seed_a_cheaper_model_is_not_recommended():
    models = [measured("lstm", [0.96]), measured("rnn", [0.60])]
    words = told(models, {"lstm": 4.0, "rnn": 1.0}, [Baseline("majority", 0.55)])
    assert "one seed tells nothing about others" in words[0].en
    assert "rnn is cheaper" in words[1].en
    assert "not distinguished from it: 0.6 against 0.96" in words[1].en
    assert len(told(models, {"lstm": 4.0, "rnn": 1.0}, [Baseline("majority", 0.7)])) == 1


def test_a_model_of_one_seed_does_not_hide_what_the_others_show():
    models = [measured("a", [0.950, 0.951, 0.952]), measured("b", [0.695, 0.696, 0.697]), measured("c", [0.45])]
    judged = judge(models, lower_is_better=False)
    assert (judged.winner, judged.apart, judged.level) == ("a", ("c",), ("a",))
    words = told(models, {"a": 4.0, "b": 3.0, "c": 1.0})
    assert words[0].en.startswith("Take a: ")
    assert "3 seeds" in words[0].en
    assert words[1].en == "Not compared, since one seed tells nothing about others: c (0.45 accuracy)."
    assert words[1].zh == "只有一个种子，未参与比较：c（0.45 accuracy）。"
    assert len(words) == 2


def test_figures_without_any_spread_do_not_show_that_two_models_are_as_good():
    right = ItemScores([1.0] * 20, [1.0] * 20)
    models = [Measured(name, [right] * 3) for name in "ab"]
    assert judge(models, lower_is_better=False).alike == ()


def test_a_winner_is_set_beside_the_best_at_half_its_cost():
    alone = judge(simulated(np.random.default_rng(8), {"a": 2.0, "b": 3.0, "c": 4.0}), True)
    assert alone.winner == "a"
    assert cheapest(alone, {"a": 4.0, "b": 2.0, "c": 1.0}) == ("b", "worse")
    assert cheapest(alone, {"a": 4.0, "b": 3.0, "c": 1.0}) == ("c", "worse")
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


def test_a_test_part_with_few_items_decides_nothing():
    models = simulated(np.random.default_rng(9), {"a": 1.0, "b": 9.0}, items=7)
    judged = judge(models, True)
    assert (judged.best, judged.winner, judged.level, judged.is_recommended) == ("a", None, ("a", "b"), False)
    said = Conditions("loss", Bilingual("10 s", "10 秒"), 3, {"a": "1.00", "b": "9.00"})
    (first,) = sentences(judged, said, {TIME: {"a": 4.0, "b": 1.0}})
    assert "too short to decide, with 7 items that can be drawn again of at least 8" in first.en
    assert "测试集太短，无法判定（可重抽的样本只有 7 个，至少需要 8 个）" in first.zh
    assert judge(simulated(np.random.default_rng(9), {"a": 1.0, "b": 9.0}, items=8), True).winner == "a"
    assert judge(models, True, [Baseline("mean", 0.5)]).naive == "mean"


# ---- forecasts from overlapping windows ---------------------------------------------------------------

HORIZON = 24


def windows(rows: int) -> SeriesWindows:
    """Return all windows over one series that predict these rows, and read one before them."""
    values = torch.zeros(rows + 1, 1)
    kept = Rows(values, None, None, torch.zeros(rows + 1, dtype=torch.long))
    return SeriesWindows(kept, np.arange(rows - HORIZON + 1), 1, HORIZON)


def forecaster(name, rng, part, rows, worse=1.0) -> Measured:
    """Return a model whose error at a row is the same from every window and, nearly, with every seed."""
    errors = worse * rng.normal(0, 1, rows) ** 2
    seeds = []
    for _ in range(3):
        own = errors + rng.normal(0, 1e-4, rows)
        by_window = torch.from_numpy(np.lib.stride_tricks.sliding_window_view(own, HORIZON).copy())  # (N, H)
        seeds.append(block_scores(part, by_window, torch.ones_like(by_window)))
    return Measured(name, seeds)


@pytest.mark.parametrize("rows", [48, 400, 503])
def test_equally_good_forecasts_have_no_winner_for_the_overlap_of_windows(rows):
    rng, part = np.random.default_rng(10), windows(rows)
    found = [judge([forecaster(name, rng, part, rows) for name in "ab"], True).winner for _ in range(200)]
    assert found.count(None) >= (200 if rows < 16 * HORIZON else 184)  # 5 % are 10; four deviations are 12


def test_better_forecasts_win_where_the_test_part_is_long():
    rng, rows = np.random.default_rng(11), 1500
    part = windows(rows)
    pairs = [[forecaster("a", rng, part, rows), forecaster("b", rng, part, rows, worse=1.5)] for _ in range(40)]
    assert [judge(pair, True).winner for pair in pairs].count("a") >= 38


def test_every_error_lies_in_one_block_of_rows():
    part = windows(100)
    errors = torch.from_numpy(np.random.default_rng(12).normal(0, 1, (77, HORIZON)) ** 2)
    counts = torch.ones_like(errors)
    counts[:, 3] = 0.0
    items = block_scores(part, errors * counts, counts)
    assert len(items.numerators) == 2  # of 50 rows
    assert items.value == pytest.approx(float((errors * counts).sum() / counts.sum()))
    place = np.arange(77)[:, None] + np.arange(HORIZON)
    assert items.numerators[0] == pytest.approx(float((errors * counts)[torch.from_numpy(place < 50)].sum()))
    assert items.by_position[3] == 0.0


def test_no_block_holds_rows_of_two_series():
    series = torch.tensor([0] * 60 + [1] * 130)
    rows = Rows(torch.zeros(190, 1), None, None, series)
    starts = np.array([*range(60 - HORIZON), *range(60, 190 - HORIZON)])
    errors = torch.zeros(len(starts), HORIZON)
    errors[: 60 - HORIZON] = 1.0
    items = block_scores(SeriesWindows(rows, starts, 1, HORIZON), errors, torch.ones_like(errors))
    assert items.numerators == [(60 - HORIZON) * HORIZON, 0.0, 0.0]


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
