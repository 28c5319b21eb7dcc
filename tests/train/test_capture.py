"""Captured updates: the same losses, memories and weights as plain ones. Needs a GPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from recollect.data.batches import Streams, Windows
from recollect.models.language import FAMILIES, LanguageConfig, LanguageModel
from recollect.optimise import Optimise
from recollect.train import update
from recollect.trainee import Budget, Plan, Trainee
from recollect.truncation import Truncation

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

TEXT = np.random.default_rng(0).integers(0, 20, 2000).astype(np.uint16)
CUTS = {"regular": Truncation("regular", 32), "reweighted": Truncation("reweighted", 32, every=16)}


def losses(family: str, capture: bool, cuts: str) -> tuple[list[float], Trainee]:
    torch.manual_seed(0)
    model = LanguageModel(LanguageConfig(family, 20, width=32, depth=2)).cuda()
    optimise = Optimise("sgd", rate=0.5, schedule="constant")
    text = Streams(TEXT, 4, 32) if model.carries else Windows(TEXT, 4, 32)
    trainee = Trainee(model, text, optimise.build(model))
    plan = Plan(Budget(steps=1), optimise, capture=capture, truncation=CUTS[cuts])
    source = iter(trainee.batches)
    return [update(trainee, source, plan, 0.5)["train_loss"] for _ in range(40)], trainee  # two rounds and more


@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("family", [f for f in FAMILIES if f != "markov"])
def test_a_captured_update_is_a_plain_one(family, cuts):
    plain, trainee = losses(family, False, cuts)
    captured, replayed = losses(family, True, cuts)
    assert replayed.captured is not None
    np.testing.assert_allclose(captured, plain, rtol=1e-4)
    for (name, p), q in zip(trainee.model.named_parameters(), replayed.model.parameters(), strict=True):
        torch.testing.assert_close(q, p, rtol=1e-3, atol=1e-4, msg=lambda text, name=name: f"{name}: {text}")


def test_dropout_is_drawn_anew_at_every_replay():
    torch.manual_seed(0)
    model = LanguageModel(LanguageConfig("lstm", 20, width=32, depth=1, dropout=0.5)).cuda()
    optimise = Optimise("sgd", rate=0.0, schedule="constant")
    trainee = Trainee(model, Streams(np.zeros(4000, dtype=np.uint16), 4, 32), optimise.build(model))
    source, plan = iter(trainee.batches), Plan(Budget(steps=1), optimise)
    seen = {update(trainee, source, plan, 0.5)["train_loss"] for _ in range(8)}
    assert len(seen) == 8
