"""The training loop: updates, budgets, evaluation, and going on as if never stopped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._pytree import register_dataclass

from recollect.core.compose import Stack
from recollect.data.text.batches import Streams
from recollect.evaluation.likelihood import loss_by_position, score_carried, score_windows, validation_scores
from recollect.layers.attention.self_attention import SelfAttention
from recollect.layers.pointwise import Embedding, Linear
from recollect.layers.recurrent.gru import GRU
from recollect.models.language import FAMILIES, LanguageConfig, LanguageModel
from recollect.tasks.language import count_symbols
from recollect.training.average import average_of
from recollect.training.checkpoint import Progress, load_result
from recollect.training.loop import restore, train, update
from recollect.training.objective import NextSymbol
from recollect.training.optimizer import Optimizer
from recollect.training.state import Diverged, TrainingBudget, TrainingPlan, TrainingState
from recollect.training.truncation import Truncation

VOCAB = 6
TEXT = np.array([0, 1, 2, 3, 4, 5, 3, 1] * 60, dtype=np.uint16)  # a pattern that everyone can learn


@dataclass
class Piece:
    x: torch.Tensor
    y: torch.Tensor
    valid: torch.Tensor | None = None
    is_start: torch.Tensor | None = None

    @property
    def count(self) -> int:
        return self.y.numel() if self.valid is None else int(self.valid.sum())


register_dataclass(Piece)


class Rows:
    """Contiguous rows of the text, read again and again; padded where `ragged`."""

    def __init__(self, batch: int = 4, steps: int = 10, ragged: bool = False) -> None:
        size = (len(TEXT) - 1) // batch
        ids = torch.from_numpy(TEXT.astype(np.int64))
        index = torch.arange(batch)[:, None] * size + torch.arange(size)
        self.x, self.y, self.steps, self.place, self.ragged = ids[index], ids[index + 1], steps, 0, ragged

    def __iter__(self):
        while True:
            start = self.place
            part = slice(start, start + self.steps)
            self.place = 0 if start + self.steps >= self.x.shape[1] else start + self.steps
            x, y = self.x[:, part], self.y[:, part]
            lengths = torch.arange(len(x)) % 3 + 1
            valid = torch.arange(x.shape[1]) < lengths[:, None] if self.ragged else None
            yield Piece(x, y, valid, torch.full((len(x),), start == 0))

    def state(self) -> dict[str, Any]:
        return {"place": self.place}

    def load_state(self, state: dict[str, Any]) -> None:
        self.place = state["place"]


def learner(family: str = "gru", seed: int = 0, dropout: float = 0.0, **rows) -> TrainingState:
    torch.manual_seed(seed)
    model = LanguageModel(LanguageConfig(family, VOCAB, width=16, layers=1, heads=2, dropout=dropout))
    return TrainingState(model, Rows(**rows), Optimizer(rate=1e-2).build(model))


def plan(steps: int = 30, **options) -> TrainingPlan:
    settings = {"evaluate_every": 10, "save_every": 10} | options
    return TrainingPlan(TrainingBudget(steps=steps), Optimizer(rate=1e-2), **settings)


def on(ids: np.ndarray) -> Callable[[Any], float]:
    return partial(validation_scores, ids=ids, steps=10)


@pytest.mark.parametrize("family", [f for f in FAMILIES if f != "markov"])
def test_every_family_learns(family, tmp_path):
    trainee, rows = learner(family), []
    assert train(trainee, plan(40), on(TEXT[:100]), tmp_path, rows.append)
    losses = [row["valid_loss"] for row in rows if "valid_loss" in row]
    assert len(losses) == 5
    assert losses[-1] < 0.75 * losses[0]
    assert trainee.progress.best == min(losses)
    assert trainee.progress.tokens == 4 * sum(min(10, 119 - 10 * (i % 12)) for i in range(40))


@pytest.mark.parametrize("middle", [GRU(16, 16), SelfAttention(16, 2)], ids=["carried", "not carried"])
def test_a_plain_stack_is_a_model(middle, tmp_path):
    torch.manual_seed(0)
    model = Stack(Embedding(VOCAB, 16), middle, Linear(16, VOCAB))
    state = TrainingState(model, Rows(), Optimizer(rate=1e-2).build(model))
    rows = []
    assert train(state, plan(20), on(TEXT[:100]), tmp_path, rows.append)
    losses = [row["valid_loss"] for row in rows if "valid_loss" in row]
    assert losses[-1] < 0.9 * losses[0]
    assert (state.memory is not None) == model.carries


def test_counting_learns_too():
    model = LanguageModel(LanguageConfig("markov", VOCAB))
    before = score_carried(model, TEXT[:100]).loss
    count_symbols(model, TEXT, chunk=100)
    assert score_carried(model, TEXT[:100]).loss < 0.5 * before


@pytest.mark.parametrize("family", ["lstm", "transformer", "ttt-linear"])
def test_a_run_that_was_stopped_ends_bit_equal(family, tmp_path):
    whole = learner(family, dropout=0.2)
    train(whole, plan(30), on(TEXT[:60]), tmp_path / "whole")

    first = learner(family, dropout=0.2)
    asked = iter([False] * 13 + [True])
    assert not train(first, plan(30), on(TEXT[:60]), tmp_path / "parts", is_stopped=lambda: next(asked))
    assert first.progress.step == 13
    again = learner(family, seed=7, dropout=0.2)
    assert restore(again, tmp_path / "parts") == []
    assert train(again, plan(30), on(TEXT[:60]), tmp_path / "parts")

    assert replace(again.progress, seconds=0) == replace(whole.progress, seconds=0)
    for a, b in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(a, b)
    if whole.memory is not None:
        assert whole.memory.equals(again.memory)


def averaged(**options) -> TrainingState:
    state = learner(**options)
    state.average = average_of(state.model)
    return state


def test_the_average_of_the_weights_is_what_is_evaluated(tmp_path):
    state, seen, measured = averaged(), [], []
    expected = [p.detach().clone() for p in state.model.parameters()]

    def note(row):
        if "train_loss" in row:
            share = 1 - min(0.9, (1 + row["step"]) / (10 + row["step"]))
            for old, new in zip(expected, state.model.parameters(), strict=True):
                old.lerp_(new.detach(), share)
            seen.append(row["step"])

    def validate(model):
        measured.append(model is state.average)
        return on(TEXT[:60])(model)

    train(state, plan(20, average=0.9), validate, tmp_path, note)
    assert seen == list(range(1, 21))
    assert measured == [True] * 3
    for ours, theirs in zip(state.average.parameters(), expected, strict=True):
        torch.testing.assert_close(ours, theirs)
    assert not torch.equal(expected[0], next(state.model.parameters()))
    kept = averaged(seed=7).model
    load_result(tmp_path / "step-00000020", kept)
    assert torch.equal(next(kept.parameters()), next(state.average.parameters()))


def test_a_stopped_average_ends_bit_equal(tmp_path):
    whole = averaged(dropout=0.2)
    train(whole, plan(20, average=0.95), on(TEXT[:60]), tmp_path / "whole")
    first = averaged(dropout=0.2)
    asked = iter([False] * 7 + [True])
    train(first, plan(20, average=0.95), on(TEXT[:60]), tmp_path / "parts", is_stopped=lambda: next(asked))
    again = averaged(seed=7, dropout=0.2)
    restore(again, tmp_path / "parts")
    train(again, plan(20, average=0.95), on(TEXT[:60]), tmp_path / "parts")
    assert replace(again.progress, seconds=0) == replace(whole.progress, seconds=0)
    for a, b in zip(whole.average.parameters(), again.average.parameters(), strict=True):
        assert torch.equal(a, b)


def test_accumulation_equals_the_large_batch():
    """Rows of different length, so that a mean of means would be wrong."""
    large, small = learner(batch=8, ragged=True), learner(batch=8, ragged=True)
    whole = next(iter(large.batches))
    parts = [Piece(*(t[i : i + 2] for t in (whole.x, whole.y, whole.valid, whole.is_start))) for i in range(0, 8, 2)]
    moves = plan()
    one = update(large, iter([whole]), moves, 0.5)
    four = update(small, iter(parts), replace(moves, accumulate=4), 0.5)
    assert one["train_loss"] == pytest.approx(four["train_loss"], rel=1e-6)
    for a, b in zip(large.model.parameters(), small.model.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("family", ["gru", "transformer", "linear-attention"])
def test_evaluation_does_not_depend_on_the_batch_size(family):
    model = learner(family).model.double()
    scores = [score_windows(model, TEXT[:333], 16, batch_size=size) for size in (1, 3, 64)]
    assert {score.tokens for score in scores} == {332}
    assert scores[1].nats == pytest.approx(scores[0].nats, rel=1e-9)
    assert scores[2].nats == pytest.approx(scores[0].nats, rel=1e-9)
    carried = [score_carried(model, TEXT[:333], steps).nats for steps in (1, 7, 400)]
    assert carried == pytest.approx([carried[0]] * 3, rel=1e-9)
    assert carried[0] != pytest.approx(scores[0].nats, rel=1e-6)


def test_scores_say_what_they_are():
    model = LanguageModel(LanguageConfig("markov", 8))  # nothing counted: all symbols alike
    score = score_carried(model, np.arange(8, dtype=np.int64))
    assert score.loss == pytest.approx(np.log(8), rel=1e-6)
    assert score.perplexity == pytest.approx(8, rel=1e-6)
    assert score.bits_per(14) == pytest.approx(1.5, rel=1e-6)
    assert np.isnan(score_windows(model, np.arange(1)).loss)


def test_loss_by_position_falls_where_the_past_helps(tmp_path):
    trainee = learner("gru")
    train(trainee, plan(60), on(TEXT[:60]), tmp_path)
    losses = loss_by_position(trainee.model, TEXT, steps=12)
    assert len(losses) == 12
    assert np.mean(losses[6:]) < losses[0]


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_last_checkpoint(tmp_path):
    trainee = learner()

    def poison(row):
        if row["step"] == 15:
            with torch.no_grad():
                trainee.model.body[0].table.weight.fill_(torch.nan)

    with pytest.raises(Diverged, match="the loss is nan at step 15"):
        train(trainee, plan(30), on(TEXT[:60]), tmp_path, poison)
    again = learner(seed=3)
    restore(again, tmp_path)
    assert again.progress.step == 10
    assert all(p.isfinite().all() for p in again.model.parameters())


def test_patience_ends_a_run(tmp_path):
    trainee = learner()
    still = replace(plan(1000, patience=3), optimizer=Optimizer(rate=0.0, warmup=0.0))
    for group in trainee.optimizer.param_groups:
        group["weight_decay"] = 0.0
    assert train(trainee, still, on(TEXT[:60]), tmp_path)
    assert trainee.progress.step == 30


def test_budgets():
    budget = TrainingBudget(steps=10, tokens=1000, seconds=60)
    assert budget.spent(Progress(step=5)) == 0.5
    assert budget.spent(Progress(step=5, tokens=900)) == 0.9
    assert budget.spent(Progress(step=11)) == 1.0
    assert TrainingBudget(seconds=2.0).spent(Progress(step=10**6, seconds=1.0)) == 0.5


def test_rates():
    cosine = Optimizer(rate=1.0, warmup=0.1)
    assert [cosine.rate_at(s) for s in (0.0, 0.05, 0.1, 1.0)] == pytest.approx([0.0, 0.5, 1.0, 0.1])
    assert cosine.rate_at(0.55) == pytest.approx(0.55)
    assert Optimizer(rate=1.0, schedule="constant", warmup=0).rate_at(0.9) == 1.0
    epochs = Optimizer(rate=1.0, schedule="step", warmup=0.0, stages=13, first_stages=4, decay=0.5)
    assert [epochs.rate_at(e / 13) for e in (0, 3.99, 4, 5, 12.5)] == [1.0, 1.0, 0.5, 0.25, 0.5**9]
    root = Optimizer(rate=1.0, schedule="root", warmup=0.04)
    assert [root.rate_at(s) for s in (0.02, 0.04, 0.16, 1.0)] == pytest.approx([0.5, 1.0, 0.5, 0.2])
    plateau = Optimizer(rate=1.0, schedule="plateau", warmup=0.0, decay=0.5)
    assert [plateau.rate_at(0.5, setbacks) for setbacks in (0, 1, 3)] == [1.0, 0.5, 0.125]
    with pytest.raises(ValueError, match=r"schedule: got 'cosinus', expected one of constant, cosine, .*mean cosine"):
        Optimizer(schedule="cosinus")


def test_the_rate_falls_where_nothing_gets_better(tmp_path):
    trainee, rows = learner(), []
    stuck = Optimizer(rate=0.5, schedule="plateau", warmup=0.0, decay=0.1, weight_decay=0.0)
    train(trainee, replace(plan(60), optimizer=stuck), on(TEXT[:60]), tmp_path, rows.append)
    losses = [row["valid_loss"] for row in rows if "valid_loss" in row]
    worse = sum(loss >= min(losses[:i]) for i, loss in enumerate(losses) if i)
    assert worse
    assert trainee.progress.setbacks == worse
    assert min(row["rate"] for row in rows if "rate" in row) < 0.1


@pytest.mark.parametrize("family", [f for f in FAMILIES if f != "markov"])
def test_bf16_learns_alike(family, tmp_path):
    losses = {}
    for precision in ("fp32", "bf16"):
        trainee = learner(family)
        train(trainee, plan(20, precision=precision), on(TEXT[:100]), tmp_path / precision)
        losses[precision] = trainee.progress.best
        assert {p.dtype for p in trainee.model.parameters()} == {torch.float32}
    assert losses["bf16"] != losses["fp32"]
    assert losses["bf16"] == pytest.approx(losses["fp32"], rel=0.05)


def test_smoothing_spreads_the_target():
    trainee, batch = learner(), next(iter(Rows()))
    plain, smooth = (float(NextSymbol(s)(learner().model, batch, None).total.detach()) for s in (0.0, 0.3))
    with torch.no_grad():
        logprobs = trainee.model(batch.x)[0].log_softmax(-1)
    everywhere = float(-logprobs.mean(-1).sum())
    assert smooth == pytest.approx(0.7 * plain + 0.3 * everywhere, rel=1e-5)


@pytest.mark.parametrize("kind", ["random", "reweighted"])
def test_random_truncation_learns_and_resumes(kind, tmp_path):
    cuts = Truncation(kind, steps=10, every=4)

    def pupil() -> TrainingState:
        trainee = learner("gru")
        streams = Streams(TEXT, 4, 10, length=cuts.length, seed=1)
        return replace(trainee, batches=streams, loss=NextSymbol(truncation=cuts))

    whole, first, second = pupil(), pupil(), pupil()
    how = plan(40)
    train(whole, how, on(TEXT[:100]), tmp_path / "whole")
    train(first, how, on(TEXT[:100]), tmp_path / "parts", is_stopped=lambda: first.progress.step == 23)
    restore(second, tmp_path / "parts")
    train(second, how, on(TEXT[:100]), tmp_path / "parts")
    assert whole.progress.best < 1.0
    assert second.progress.tokens == whole.progress.tokens != 40 * 40  # lengths differ
    assert all(torch.equal(p, q) for p, q in zip(whole.model.parameters(), second.model.parameters(), strict=True))


def test_clipping():
    weight = torch.nn.Parameter(torch.zeros(4))
    weight.grad = torch.tensor([3.0, 4.0, 0.0, 0.0])
    assert Optimizer(clip_norm=1.0).clip([weight]) == pytest.approx(5.0)
    assert weight.grad.norm() == pytest.approx(1.0, rel=1e-4)
    weight.grad = torch.tensor([3.0, -4.0, 0.5, 0.0])
    Optimizer(clip_norm=None, clip_value=1.0).clip([weight])
    assert weight.grad.tolist() == [1.0, -1.0, 0.5, 0.0]
