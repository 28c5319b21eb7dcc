"""Trainings so small that a few processes share them within a second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from recollect.core.task import Batches
from recollect.data.pairs.pair_batches import PairBatches
from recollect.data.pairs.pair_rows import part_in_memory
from recollect.data.text.batches import Streams, Windows
from recollect.models.language import LanguageConfig, LanguageModel
from recollect.models.translation import TranslationConfig, Translator
from recollect.training.loop import update
from recollect.training.optimizer import Optimizer
from recollect.training.sharding import is_divided, shard
from recollect.training.state import TrainingBudget, TrainingPlan, TrainingState
from recollect.training.workers import ALONE, Alone

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
    "ttt-linear": lambda: language("ttt-linear", mini_batch=4),
    "bahdanau": lambda: translation("bahdanau"),
}


def learner(name: str, workers: Alone = ALONE, *, is_sharded: bool = False) -> TrainingState:
    torch.manual_seed(0)
    model, batches = MADE[name]()
    model.double()
    network = shard(model, workers.size) if is_sharded else None
    optimizer = Optimizer().build(model)
    return TrainingState(model, batches, optimizer, workers=workers, network=network, is_sharded=is_sharded)


def plan(updates: int = UPDATES, **options: Any) -> TrainingPlan:
    return TrainingPlan(TrainingBudget(steps=updates), Optimizer(), **options)


def losses(state: TrainingState, how: TrainingPlan, updates: int = UPDATES) -> list[float]:
    source = iter(state.batches)
    return [update(state, source, how, i / max(updates, UPDATES))["train_loss"] for i in range(updates)]


def weights(state: TrainingState) -> list[float]:
    """Return all weights, in every process; of a sharded model each asks all for them."""
    full = (p.full_tensor() if is_divided(p) else p for p in state.model.parameters())
    return [float(number) for p in full for number in p.detach().flatten()]


def carried(state: TrainingState) -> list[float]:
    """Return the memory of all rows, in the first process."""
    memory = state.workers.joined(state.memory)
    return [] if memory is None else [float(number) for t in memory.leaves() for number in t.flatten()]
