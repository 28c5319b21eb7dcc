"""Captured updates: the same losses, memories and weights as plain ones. Needs a GPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from recollect.data.pairs.pair_batches import PairBatches
from recollect.data.pairs.pair_rows import part_in_memory
from recollect.data.text.batches import Streams, Windows
from recollect.models.language import FAMILIES, LanguageConfig, LanguageModel
from recollect.models.translation import TranslationConfig, Translator
from recollect.training.loop import update
from recollect.training.objective import NextSymbol
from recollect.training.optimizer import Optimizer
from recollect.training.state import TrainingBudget, TrainingPlan, TrainingState
from recollect.training.truncation import Truncation

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("ignore:RNN module weights"),  # each layer has its own; cuDNN copies them side by side
]

TEXT = np.random.default_rng(0).integers(0, 20, 2000).astype(np.uint16)
CUTS = {"regular": Truncation("regular", 32), "reweighted": Truncation("reweighted", 32, every=16)}


def losses(family: str, capture: bool, cuts: str) -> tuple[list[float], TrainingState]:
    torch.manual_seed(0)
    model = LanguageModel(LanguageConfig(family, 20, width=32, layers=2)).cuda()
    optimise = Optimizer("sgd", rate=0.5, schedule="constant")
    text = Streams(TEXT, 4, 32) if model.carries else Windows(TEXT, 4, 32)
    trainee = TrainingState(model, text, optimise.build(model), NextSymbol(truncation=CUTS[cuts]))
    plan = TrainingPlan(TrainingBudget(steps=1), optimise, capture=capture)
    source = iter(trainee.batches)
    return [update(trainee, source, plan, 0.5)["train_loss"] for _ in range(40)], trainee  # two rounds and more


@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("family", [f for f in FAMILIES if f != "markov"])
def test_a_captured_update_is_a_plain_one(family, cuts):
    plain, trainee = losses(family, False, cuts)
    captured, replayed = losses(family, True, cuts)
    assert len(replayed.captured) == 1
    np.testing.assert_allclose(captured, plain, rtol=1e-4)
    for (name, p), q in zip(trainee.model.named_parameters(), replayed.model.parameters(), strict=True):
        torch.testing.assert_close(q, p, rtol=1e-3, atol=1e-4, msg=lambda text, name=name: f"{name}: {text}")


def test_dropout_is_drawn_anew_at_every_replay():
    torch.manual_seed(0)
    model = LanguageModel(LanguageConfig("lstm", 20, width=32, layers=1, dropout=0.5)).cuda()
    optimise = Optimizer("sgd", rate=0.0, schedule="constant")
    trainee = TrainingState(model, Streams(np.zeros(4000, dtype=np.uint16), 4, 32), optimise.build(model))
    source, plan = iter(trainee.batches), TrainingPlan(TrainingBudget(steps=1), optimise)
    seen = {update(trainee, source, plan, 0.5)["train_loss"] for _ in range(8)}
    assert len(seen) == 8


# ---- pairs: of many shapes, padded to a few -------------------------------------------------------

SYMBOLS, BEGIN, END = 9, 9, 10


def pairs(lengths):
    draw = np.random.default_rng(0)
    sides = [(draw.integers(0, SYMBOLS, n - 1), draw.integers(0, SYMBOLS, n)) for n in lengths]
    return part_in_memory([(source, "", target, "") for source, target in sides], np.dtype(np.uint8))


def translator_in_training(family: str, lengths, rate: float, dropout: float = 0.0) -> TrainingState:
    torch.manual_seed(0)
    shape = {"width": 32, "hidden": 32, "layers": 2, "dropout": dropout}
    model = Translator(TranslationConfig(family, SYMBOLS, SYMBOLS + 2, **shape)).cuda()
    optimise = Optimizer("sgd", rate=rate, schedule="constant")
    batches = PairBatches(pairs(lengths), begin=BEGIN, end=END, batch_size=10)
    return TrainingState(model, batches, optimise.build(model))


def pair_losses(trainee: TrainingState, rate: float, updates: int, **options) -> list[float]:
    plan = TrainingPlan(TrainingBudget(steps=1), Optimizer("sgd", rate=rate, schedule="constant"), **options)
    source = iter(trainee.batches)
    return [update(trainee, source, plan, 0.5)["train_loss"] for _ in range(updates)]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("family", ["bahdanau", "transformer"])
def test_captured_pairs_teach_what_plain_ones_do(family, smoothing, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # kernels may differ: padded shapes are others
    lengths = [1 + i // 2 for i in range(40)]  # four batches a round, of three shapes when padded
    plain, replayed = (translator_in_training(family, lengths, rate=0.1) for _ in range(2))
    wanted = pair_losses(plain, 0.1, 12, smoothing=smoothing, capture=False)
    captured = pair_losses(replayed, 0.1, 12, smoothing=smoothing)
    assert not plain.captured
    assert len(replayed.captured) == 3
    assert len({graph.pool for graph in replayed.captured.values()}) == 1
    np.testing.assert_allclose(captured, wanted, rtol=1e-4)
    for (name, p), q in zip(plain.model.named_parameters(), replayed.model.parameters(), strict=True):
        torch.testing.assert_close(q, p, rtol=1e-3, atol=1e-4, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("family", ["bahdanau", "transformer"])
def test_captured_pairs_learn_in_bf16(family):
    trainee = translator_in_training(family, [1 + i // 2 for i in range(40)], rate=0.1)
    seen = pair_losses(trainee, 0.1, 40, precision="bf16")
    assert len(trainee.captured) == 3
    assert np.mean(seen[-8:]) < np.mean(seen[:8])


@pytest.mark.parametrize("family", ["bahdanau", "transformer"])
def test_dropout_of_pairs_is_drawn_anew_at_every_replay(family):
    trainee = translator_in_training(family, [5] * 10, rate=0.0, dropout=0.5)  # one batch, again and again
    seen = pair_losses(trainee, 0.0, 8)
    assert len(trainee.captured) == 1
    assert len(set(seen)) == 8
