"""Captured updates of pairs, as far as no GPU is needed: padding is inert, means are means, few shapes are captured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_leaves

from recollect.core.capture import Captured, layout_of
from recollect.core.memory import Layers, Nothing
from recollect.data.pairs.pair_batches import PairBatch, PairBatches, gather_pairs, pad_batch
from recollect.data.pairs.pair_rows import part_in_memory
from recollect.data.text.batches import Streams
from recollect.layers.recurrent.recurrence import Hidden
from recollect.models.captioning import CaptionConfig, Captioner
from recollect.models.language import LanguageConfig, LanguageModel
from recollect.models.translation import TranslationConfig, Translator
from recollect.training import step as gradient
from recollect.training.loop import update
from recollect.training.objective import NextSymbol
from recollect.training.optimizer import Optimizer
from recollect.training.state import TrainingBudget, TrainingPlan, TrainingState
from recollect.training.step import captured_gradients

SYMBOLS = 9
BEGIN, END = SYMBOLS, SYMBOLS + 1
FAMILIES = ("sutskever", "bahdanau", "luong", "transformer")


def pairs(count: int = 40, longest: int = 20):
    """Pairs of all lengths, so that batches of ten, padded, have three shapes; a source or two are empty."""
    draw = np.random.default_rng(0)
    lengths = [1 + i * longest // count for i in range(count)]
    sides = [(draw.integers(0, SYMBOLS, n - 1), draw.integers(0, SYMBOLS, n)) for n in lengths]
    return part_in_memory([(source, "", target, "") for source, target in sides], np.dtype(np.uint8))


def translator(family: str, **options) -> Translator:
    torch.manual_seed(0)
    shape = {"width": 8, "hidden": 8, "heads": 2, "layers": 2}
    return Translator(TranslationConfig(family, SYMBOLS, SYMBOLS + 2, **shape, **options)).double()


def plan(**options) -> TrainingPlan:
    return TrainingPlan(TrainingBudget(steps=1), Optimizer("sgd", rate=0.5, schedule="constant"), **options)


def learner(model, batches=None, smoothing: float = 0.0) -> TrainingState:
    batches = batches or PairBatches(pairs(), begin=BEGIN, end=END, batch_size=10)
    return TrainingState(model, batches, plan().optimizer.build(model), NextSymbol(smoothing))


def poisoned(batch: PairBatch) -> PairBatch:
    """Put symbols where nothing is real, and targets that there are not."""
    source = torch.where(batch.source_valid, batch.source, 3) if batch.source.dim() == 2 else batch.source
    return replace(
        batch, source=source, x=torch.where(batch.valid, batch.x, 3), y=batch.y.masked_fill(~batch.valid, 999)
    )


def gradients_of(model, loss) -> list[torch.Tensor | None]:
    model.zero_grad()
    loss.backward()
    return [p.grad for p in model.parameters()]


def check_padding(model, batch: PairBatch, smoothing: float) -> None:
    """Hold a padded batch against itself: summed as it is read plainly, and as the mean that is captured."""
    loss, padded = NextSymbol(smoothing), poisoned(pad_batch(batch))
    plain, other = loss(model.train(), batch, None), loss(model, padded, None)
    assert padded.count == batch.count == int(plain.count) == int(other.count)
    wanted = gradients_of(model, plain.total)
    torch.testing.assert_close(other.total, plain.total, rtol=1e-10, atol=1e-10)
    for found, gradient_wanted in zip(gradients_of(model, other.total), wanted, strict=True):
        torch.testing.assert_close(found, gradient_wanted, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("numbers", [range(13), [7, 7, 7]], ids=["ragged", "even"])
def test_padding_changes_neither_loss_nor_gradients(family, smoothing, numbers):
    batch = gather_pairs(pairs(), np.array(numbers), BEGIN, END)
    check_padding(translator(family), batch, smoothing)


@pytest.mark.parametrize("family", ["show-attend-tell", "transformer"])
def test_empty_pictures_change_neither_loss_nor_gradients(family):
    torch.manual_seed(0)
    model = Captioner(CaptionConfig(family, SYMBOLS + 2, 6, 8, width=8, heads=2, grid=4)).double()
    batch = gather_pairs(pairs(), np.arange(5), BEGIN, END)
    pictures = torch.randint(256, (5, 6, 8, 3), dtype=torch.uint8)
    check_padding(model, replace(batch, source=pictures, source_valid=None), smoothing=0.1)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_mean_is_the_sum_over_the_count(smoothing):
    """Also of text, which has no mask and carries its memory."""
    model = LanguageModel(LanguageConfig("lstm", SYMBOLS, width=8, layers=1)).double()
    loss, streams = NextSymbol(smoothing), Streams(np.arange(200) % SYMBOLS, 4, 16)
    first, second = (batch for batch, _ in zip(streams, range(2), strict=False))
    carried = loss(model, first, None).memory
    found = loss(model, second, carried)
    wanted = torch.nn.functional.cross_entropy(
        model(second.x, carried)[0].flatten(0, 1), second.y.flatten(), label_smoothing=smoothing
    )
    torch.testing.assert_close(found.total / found.count, wanted, rtol=1e-12, atol=0)
    assert found.memory.equals(model(second.x, carried)[1], tol=1e-12)
    assert not any(t.requires_grad for t in found.memory.tensors().values())


# ---- the whole way, with a rehearsal in the graph's place ------------------------------------------


class Rehearsed(Captured):
    """What a graph would replay is read again, from its own inputs into its own results."""

    made = 0

    def _capture(self, beside: Captured | None) -> None:
        self.loss, self.after = self._update()
        self.gradients = [p.grad for p in self.parameters] if beside is None else beside.gradients
        self.graph = self
        Rehearsed.made += 1

    def replay(self) -> None:
        self._clear_gradients()
        loss, after = self._update()
        self.loss.copy_(loss)
        for mine, new in zip(tree_leaves(self.after), tree_leaves(after), strict=True):
            if mine is not None:
                mine.copy_(new)
        for p, mine in zip(self.parameters, self.gradients, strict=True):
            if mine is not None:
                mine.copy_(p.grad)
            p.grad = mine


@pytest.fixture
def rehearsal(monkeypatch):
    monkeypatch.setattr(gradient, "CAPTURING", "cpu")
    monkeypatch.setattr(gradient, "Captured", Rehearsed)
    monkeypatch.setattr(Rehearsed, "made", 0)


def losses(trainee: TrainingState, how: TrainingPlan, updates: int = 12) -> list[float]:
    source = iter(trainee.batches)
    return [update(trainee, source, how, 0.5)["train_loss"] for _ in range(updates)]


def weights(trainee: TrainingState) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in trainee.model.parameters()])


@pytest.mark.usefixtures("rehearsal")
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("family", FAMILIES)
def test_captured_pairs_teach_what_plain_ones_do(family, smoothing):
    plain, captured = (learner(translator(family), smoothing=smoothing) for _ in range(2))
    np.testing.assert_allclose(losses(captured, plan()), losses(plain, plan(capture=False)), rtol=1e-9)
    torch.testing.assert_close(weights(captured), weights(plain), rtol=1e-7, atol=1e-9)
    assert not plain.captured
    assert len(captured.captured) == Rehearsed.made == 3  # shapes


@pytest.mark.usefixtures("rehearsal")
def test_captured_text_teaches_what_plain_text_does():
    def begun() -> TrainingState:
        torch.manual_seed(0)
        model = LanguageModel(LanguageConfig("lstm", SYMBOLS, width=8, layers=1)).double()
        return learner(model, Streams(np.random.default_rng(0).integers(0, SYMBOLS, 400), 4, 16))

    plain, captured = begun(), begun()
    np.testing.assert_allclose(losses(captured, plan()), losses(plain, plan(capture=False)), rtol=1e-9)
    assert len(captured.captured) == Rehearsed.made == 1
    assert captured.memory.equals(plain.memory, tol=1e-9)


@pytest.mark.usefixtures("rehearsal")
def test_the_first_stretch_of_text_that_goes_on_is_captured_at_once():
    model = LanguageModel(LanguageConfig("lstm", SYMBOLS, width=8, layers=1))
    trainee = learner(model, Streams(np.arange(400) % SYMBOLS, 4, 16))
    losses(trainee, plan(), updates=1)
    assert not trainee.captured  # it begins anew
    losses(trainee, plan(), updates=1)
    assert len(trainee.captured) == 1


def batch_of(steps: int) -> PairBatch:
    rows = [(np.zeros(steps, int), "", np.zeros(steps - 1, int), "")] * 3
    return gather_pairs(part_in_memory(rows, np.dtype(np.uint8)), np.arange(3), BEGIN, END)


@pytest.mark.usefixtures("rehearsal")
def test_a_shape_is_captured_when_it_comes_for_the_second_time():
    trainee = learner(translator("sutskever"))
    assert captured_gradients(trainee, [batch_of(5)], plan()) is None
    assert captured_gradients(trainee, [batch_of(9)], plan()) is None
    assert not trainee.captured
    assert captured_gradients(trainee, [batch_of(7)], plan()) is not None  # padded it is as long as the first
    assert captured_gradients(trainee, [batch_of(8)], plan()) is not None
    assert len(trainee.captured) == Rehearsed.made == 1


@pytest.mark.usefixtures("rehearsal")
def test_what_was_not_used_for_longest_makes_room(monkeypatch):
    monkeypatch.setattr(gradient, "MOST_GRAPHS", 2)
    trainee = learner(translator("sutskever"))
    for steps in (8, 8, 16, 16, 8, 24, 24):  # 16 has to go
        captured_gradients(trainee, [batch_of(steps)], plan())
    assert [layout[0][0][0][1] for layout in trainee.captured] == [8, 24]
    assert captured_gradients(trainee, [batch_of(16)], plan()) is None  # as if it had never come
    assert captured_gradients(trainee, [batch_of(16)], plan()) is not None
    assert [layout[0][0][0][1] for layout in trainee.captured] == [24, 16]


@pytest.mark.usefixtures("rehearsal")
@pytest.mark.parametrize(("count", "options"), [(2, {}), (1, {"capture": False})])
def test_several_batches_to_an_update_are_read_plainly_and_so_is_what_should_be(count, options):
    trainee = learner(translator("sutskever"))
    for _ in range(3):
        assert captured_gradients(trainee, [batch_of(8)] * count, plan(**options)) is None
    assert not trainee.captured
    assert not trainee.seen


def test_nothing_is_captured_without_a_gpu():
    trainee = learner(translator("sutskever"))
    losses(trainee, plan(), updates=8)
    assert not trainee.captured


def test_a_layout_is_all_but_the_values():
    def inputs(rows: int = 2, filled: float = 0.0, **options):
        return (
            torch.full((rows, 3), filled, **options),
            None,
            Layers(layers=(Hidden(hidden=torch.ones(2, 3)), Nothing())),
        )

    assert layout_of(inputs()) == layout_of(inputs(filled=1.0))
    assert hash(layout_of(inputs())) == hash(layout_of(inputs(filled=1.0)))
    others = inputs(rows=3), inputs(dtype=torch.float64), inputs()[:2], (*inputs()[:2], None)
    assert all(layout_of(other) != layout_of(inputs()) for other in others)


@pytest.mark.usefixtures("rehearsal")
def test_a_graph_refuses_inputs_of_another_layout():
    weight = torch.nn.Parameter(torch.ones(3))
    captured = Rehearsed(lambda inputs: ((inputs[0] * weight).sum(), None), (torch.ones(2, 3), None), [weight])
    assert float(captured((torch.full((2, 3), 2.0), None))[0]) == 12
    assert weight.grad.tolist() == [4, 4, 4]
    assert not captured.fits((torch.ones(1, 3), None))
    with pytest.raises(AssertionError):
        captured((torch.ones(1, 3), None))
