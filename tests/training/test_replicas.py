"""Several processes that share the rows of each batch train the weights that a single one does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from forked import forked
from recollect.core.capture import Captured
from recollect.core.task import Batches, Loss
from recollect.data.pairs.pair_batches import PairBatches
from recollect.data.pairs.pair_rows import part_in_memory
from recollect.data.text.batches import Streams, Windows
from recollect.models.language import LanguageConfig, LanguageModel
from recollect.models.translation import TranslationConfig, Translator
from recollect.training import step as gradient
from recollect.training.loop import update
from recollect.training.objective import NextSymbol
from recollect.training.optimizer import Optimizer
from recollect.training.state import Budget, Diverged, Plan, TrainingState
from recollect.training.workers import ALONE, Alone
from tiers import slow_after

DRAW = np.random.default_rng(0)
TEXT = DRAW.integers(0, 9, 600)
ENDS = np.array([3, 60, 61, 130, 400, 600])  # documents of unequal length: rows begin anew, end early and wait
PAIRS = [(DRAW.integers(0, 9, 1 + i % 5), "", DRAW.integers(0, 9, 1 + i % 7), "") for i in range(11)]
UPDATES = 10


def language(family: str, **options: Any) -> tuple[LanguageModel, Batches]:
    model = LanguageModel(LanguageConfig(family, 9, width=8, layers=2, heads=2, **options))
    kind: type[Streams | Windows] = Streams if model.carries else Windows
    return model, kind(TEXT, 4, 7, ends=ENDS, seed=1)


def translation(family: str) -> tuple[Translator, Batches]:
    """Eleven pairs in batches of four: the last batch of an epoch has three, fewer than there are processes."""
    model = Translator(TranslationConfig(family, 9, 11, width=8, hidden=8, heads=2, layers=1))
    return model, PairBatches(part_in_memory(PAIRS, np.dtype(np.uint8)), begin=9, end=10, batch_size=4)


MADE: dict[str, Callable[[], tuple[Any, Batches]]] = {
    "lstm": lambda: language("lstm"),
    "transformer": lambda: language("transformer"),
    "linear-attention": lambda: language("linear-attention"),
    "window": lambda: language("window"),
    "bahdanau": lambda: translation("bahdanau"),
}


def learner(name: str, workers: Alone = ALONE) -> TrainingState:
    torch.manual_seed(0)
    model, batches = MADE[name]()
    return TrainingState(model.double(), batches, Optimizer().build(model), workers=workers)


def plan(**options: Any) -> Plan:
    return Plan(Budget(steps=UPDATES), Optimizer(), **options)


def losses(state: TrainingState, how: Plan, updates: int = UPDATES) -> list[float]:
    source = iter(state.batches)
    return [update(state, source, how, i / UPDATES)["train_loss"] for i in range(updates)]


def weights(state: TrainingState) -> list[float]:
    return [float(number) for p in state.model.parameters() for number in p.detach().flatten()]


def together(folder, size: int, name: str, how: Plan) -> list[list[list[float]]]:
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
            *((name, 2, {}) for name in MADE if name not in ("lstm", "bahdanau")),
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
    MADE["ttt-linear"] = lambda: language("ttt-linear", mini_batch=4)
    alone = learner("ttt-linear")
    expected = losses(alone, plan(), updates=6)

    def work(workers: Alone) -> list[list[float]]:
        state = learner("ttt-linear", workers)
        return [losses(state, plan(), updates=6), weights(state)]

    for found, after in forked(tmp_path, 2, work):
        np.testing.assert_allclose(found, expected, rtol=1e-11)
        np.testing.assert_allclose(after, weights(alone), rtol=0, atol=1e-11)


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
