"""Several processes that share the rows of each batch train the weights that a single one does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from forked import forked
from learners import MADE, UPDATES, learner, losses, plan, weights
from recollect.core.capture import Captured
from recollect.core.task import Loss
from recollect.training import step as gradient
from recollect.training.loop import update
from recollect.training.objective import NextSymbol
from recollect.training.state import Diverged, TrainingPlan
from recollect.training.workers import Alone
from tiers import slow_after


def together(folder, size: int, name: str, how: TrainingPlan) -> list[list[list[float]]]:
    def work(workers: Alone) -> list[list[float]]:
        state = learner(name, workers)
        return [losses(state, how), weights(state)]

    return forked(folder, size, work)


@pytest.mark.parametrize(
    ("name", "size", "options"),
    slow_after(
        2,
        [
            ("lstm", 2, {}),
            ("bahdanau", 4, {}),
            ("lstm", 4, {"accumulate": 3}),
            ("bahdanau", 4, {"accumulate": 2}),
            *((name, 2, {}) for name in MADE if name not in ("lstm", "bahdanau", "ttt-linear")),
        ],
    ),
)
def test_the_same_batches_train_the_same_weights(tmp_path, name, size, options):
    alone = learner(name)
    expected = losses(alone, plan(**options))
    for found, after in together(tmp_path, size, name, plan(**options)):
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        np.testing.assert_allclose(after, weights(alone), rtol=0, atol=1e-12)


def test_ttt_begins_from_weights_that_only_some_updates_use(tmp_path):
    """Few updates: TTT amplifies differences of rounding, from 1e-16 to 1e-3 within 200."""
    alone = learner("ttt-linear")
    expected = losses(alone, plan(), updates=6)

    def work(workers: Alone) -> list[list[float]]:
        state = learner("ttt-linear", workers)
        return [losses(state, plan(), updates=6), weights(state)]

    for found, after in forked(tmp_path, 2, work):
        np.testing.assert_allclose(found, expected, rtol=1e-11)
        np.testing.assert_allclose(after, weights(alone), rtol=0, atol=1e-11)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_an_update_after_a_restart_is_equal_to_the_last_bit(tmp_path, accumulate):
    """After a restart the first update does without DDP; batches of odd counts show a rounding of its own."""
    how = plan(accumulate=accumulate)

    def work(workers: Alone) -> list[bool]:
        calm, restarted = (learner("lstm", workers) for _ in range(2))
        sources = iter(calm.batches), iter(restarted.batches)
        same = []
        for i in range(UPDATES):
            restarted.network = None
            rows = [
                update(state, each, how, i / UPDATES) for state, each in zip((calm, restarted), sources, strict=True)
            ]
            same.append(rows[0] == rows[1] and weights(calm) == weights(restarted))
        return same

    assert forked(tmp_path, 2, work) == [[True] * UPDATES] * 2


class Rehearsed(Captured):
    """What a graph would replay is computed again."""

    def _capture(self, beside: Captured | None) -> None:
        self.graph = self
        self.replay()
        self.gradients = [p.grad for p in self.parameters]

    def replay(self) -> None:
        self._clear_gradients()
        self.loss, self.after = self._update()


def test_what_each_replays_from_a_graph_is_averaged(tmp_path, monkeypatch):
    alone = learner("lstm")
    expected = losses(alone, plan())
    monkeypatch.setattr(gradient, "CAPTURING", "cpu")
    monkeypatch.setattr(gradient, "Captured", Rehearsed)

    def work(workers: Alone) -> list[Any]:
        state = learner("lstm", workers)
        return [losses(state, plan()), weights(state), len(state.captured)]

    found = forked(tmp_path, 2, work)
    assert max(captured for _, _, captured in found) == 1
    for each, after, _ in found:
        np.testing.assert_allclose(each, expected, rtol=1e-12)
        np.testing.assert_allclose(after, weights(alone), rtol=0, atol=1e-12)


def poisoned(*given: Any) -> Loss:
    found = NextSymbol()(*given)
    return replace(found, total=found.total * torch.nan)


def test_a_loss_that_is_not_finite_in_one_process_stops_all_alike(tmp_path):
    def work(workers: Alone) -> str:
        state = learner("lstm", workers)
        losses(state, plan(), updates=2)
        if workers.launch.rank == 1:
            state.loss = poisoned
        with pytest.raises(Diverged) as stopped:
            losses(state, plan(), updates=1)
        return str(stopped.value)

    assert forked(tmp_path, 2, work) == ["the loss is nan at step 2; lower the rate"] * 2


def test_of_several_batches_only_the_last_is_synchronised(tmp_path):
    """DDP sends each bucket of gradients once an update, however many batches there are to it."""

    def sent(workers: Alone) -> int:
        state = learner("lstm", workers)
        losses(state, plan(accumulate=3), updates=1)  # the first shows which weights have a gradient
        buckets = []

        def hook(nothing, bucket):  # DDP checks annotations, and refuses those that are strings
            buckets.append(bucket.index())
            kept = torch.futures.Future()
            kept.set_result(bucket.buffer())
            return kept  # nothing is sent

        state.network.register_comm_hook(None, hook)
        losses(state, plan(accumulate=3), updates=4)
        return len(buckets)

    assert forked(tmp_path, 2, sent) == [4, 4]
