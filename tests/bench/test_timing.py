"""Contenders take turns, a disturbed attempt is made again, and results that differ stop everything."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from recollect import GRU
from recollect.bench.contest_table import measure
from recollect.bench.contests import ContestShape, attention_contest, recurrent_contest
from recollect.bench.floor import Floor
from recollect.bench.loops import Generated, generation_contest, words_differ
from recollect.bench.timing import (
    BOTH,
    FORWARD,
    Differs,
    interleave,
    largest_difference,
    one_pass,
    summary,
    time_steadily,
)

SMALL = ContestShape(batch=2, steps=5, hidden=8)


class Clock:
    """Tells planted times, and writes down who was timed."""

    def __init__(self, times: dict[str, list[float]]) -> None:
        self.times, self.order = times, list[str]()

    def works(self) -> dict:
        return {name: (lambda name=name: name) for name in self.times}

    def __call__(self, work) -> float:
        name = work()
        self.order.append(name)
        return self.times[name].pop(0)


def test_contenders_take_turns_and_warm_ups_are_not_counted():
    clock = Clock({"a": [9.0, 1.0, 2.0], "b": [8.0, 3.0, 4.0]})
    assert interleave(clock.works(), rounds=2, warmup=1, clock=clock) == {"a": [1.0, 2.0], "b": [3.0, 4.0]}
    assert clock.order == ["a", "b"] * 3


def test_a_wide_attempt_is_made_again_and_the_narrowest_counts():
    wide, narrow, wider = [1.0, 2.0, 3.0], [2.0, 2.2, 2.4], [1.0, 5.0, 9.0]
    clock = Clock({"a": wide + narrow + wider})
    found = time_steadily(clock.works(), 3, limit=0.25, attempts=3, warmup=0, clock=clock)
    assert found.medians == {"a": 2.2}
    assert found.attempts == 2
    assert found.spread == pytest.approx(summary(narrow)[1])
    assert clock.times["a"] == wider


def test_attempts_end():
    clock = Clock({"a": [1.0, 5.0, 9.0] * 2})
    found = time_steadily(clock.works(), 3, limit=0.25, attempts=2, warmup=0, clock=clock)
    assert found.attempts == 2
    assert found.medians == {"a": 5.0}


@pytest.mark.parametrize("task", [FORWARD, BOTH])
def test_one_pass_gives_outputs_and_gradients(task):
    layer = GRU(3, 3)
    x = torch.randn(2, 4, 3)
    found = one_pass(task, layer, lambda x: layer(x)[0], x)()
    assert [t.shape for t in found[:1]] == [x.shape]
    assert len(found) == (1 if task == FORWARD else 2 + len(list(layer.parameters())))
    assert layer.training == (task == BOTH)


def test_different_results_are_refused():
    a = torch.tensor([1.0, 2.0])
    assert largest_difference((a,), (a + 1e-6,), 1e-4) < 2e-6
    with pytest.raises(Differs, match=r"expected at most 0\.0001"):
        largest_difference((a,), (a + 1e-2,), 1e-4)
    with pytest.raises(Differs):
        largest_difference((a,), (a * torch.nan,), 1e-4)


def test_a_planted_fault_stops_a_contest_before_it_is_timed():
    contest = recurrent_contest(GRU, SMALL, BOTH)

    def faulty():
        y, *rest = contest.results["nn.GRU"]()
        return y + 0.1, *rest

    untimed = dict.fromkeys(contest.contenders, lambda: pytest.fail("it was timed"))
    wrong = replace(contest, contenders=untimed, results={**contest.results, "nn.GRU": faulty})
    with pytest.raises(Differs):
        measure(wrong, Floor(torch.device("cpu"), 1e9), rounds=2)


@pytest.mark.parametrize("task", [FORWARD, BOTH])
def test_rows_say_what_was_timed(task):
    (row,) = measure(attention_contest(SMALL, task), Floor(torch.device("cpu"), 1e9), rounds=2)
    assert row["times_faster"] == pytest.approx(row["theirs_ms"] / row["ours_ms"], rel=0.05)
    assert row["against"] == "nn.MultiheadAttention"
    assert row["largest_difference"] <= row["tolerance"] == 1e-4
    assert (row["batch"], row["steps"], row["hidden"], row["dtype"]) == (2, 5, 8, "float32")


def test_back_propagation_counts_three_times_the_operations():
    once, thrice = (recurrent_contest(GRU, SMALL, task).operations for task in (FORWARD, BOTH))
    assert once == 2 * 2 * 5 * 3 * 8 * 16  # a product and a sum; batch, steps, gates, H, D + H
    assert thrice == 3 * once


@pytest.mark.parametrize("family", ["rnn", "gru", "lstm", "transformer"])
def test_generation_says_what_a_plain_loop_says(family):
    contest = generation_contest(family, width=32, tokens=20)
    ours, loop = contest.results["ours"](), contest.results["a torch loop"]()
    assert len(ours.ids) == 20
    assert words_differ(ours, loop, contest.tolerance) < contest.tolerance


def test_what_is_said_may_differ_after_a_tie_only():
    ours = Generated([1, 2, 3], [-1.0, -2.0, -1.0])
    assert words_differ(ours, Generated([1, 5, 9], [-1.0, -2.0, -7.0]), 1e-3) == 0
    with pytest.raises(Differs):
        words_differ(ours, Generated([1, 5, 9], [-1.0, -2.5, -7.0]), 1e-3)
