"""Recorded steps: they generate what the model generates, without side effects."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from generate_models import FAMILIES, VOCAB, language_model
from recollect.accel.cpu.decode import repeated_step as repeating
from recollect.accel.cpu.decode.repeated_step import RepeatedStep
from recollect.accel.model_survey import FEWEST
from recollect.core import dispatch
from recollect.core.layer import SequenceLayer
from recollect.core.record import is_readable, readable
from recollect.core.validate import may_look_at, without_looks
from recollect.generation import prefill as reading
from recollect.generation.beam import beam
from recollect.generation.sampling import generate, stream
from recollect.generation.settings import Search, Settings, compiled
from recollect.layers.recurrent.recurrence import Hidden
from recollect.models import translation
from recollect.models.translation import TranslationConfig, Translator

REPEATABLE = [name for name in FAMILIES if name != "markov"]  # what it does depends on how many symbols it has read
LONG = Settings(tokens=40, seed=3)


def steps_of(model: Any) -> list[RepeatedStep]:
    return repeating._RECORDED.get(model, [])


@pytest.fixture(autouse=True)
def requested(compiler: Path) -> Iterator[None]:
    with compiled():
        yield


def plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch._switch, "is_on", False)


def ragged(count: int) -> list[list[int]]:
    draw = torch.Generator().manual_seed(count)
    return [torch.randint(VOCAB, (1 + i % 4,), generator=draw).tolist() for i in range(count)]


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("name", FAMILIES)
def test_the_same_is_said_as_without(name, rows, monkeypatch):
    model = language_model(name)
    tokens = 50 if name == "attention" else 70  # it has 60 positions
    settings = Settings(tokens=tokens, seed=1, stop=[2])
    found = [generate(model, ragged(rows), s) for s in (settings, Settings(tokens=tokens, greedy=True))]
    assert bool(steps_of(model)) == (name in REPEATABLE), repeating._REFUSED.get(model)
    plainly(monkeypatch)
    want = [generate(model, ragged(rows), s) for s in (settings, Settings(tokens=tokens, greedy=True))]
    for a, b in zip(found[0] + found[1], want[0] + want[1], strict=True):
        assert a.ids == b.ids
        assert a.logprobs == pytest.approx(b.logprobs, abs=1e-9)
        assert a.memory.equals(b.memory, 1e-9)
        assert torch.allclose(a.logits, b.logits, 1e-9, 1e-9)


@pytest.mark.parametrize("family", translation.FAMILIES)
def test_translators_too(family, monkeypatch):
    torch.manual_seed(0)
    model = Translator(TranslationConfig(family, 9, 11, width=8, hidden=12, heads=2)).double().eval()
    source, valid = torch.randint(9, (4, 6)), torch.arange(6) < torch.tensor([[6], [1], [0], [4]])
    search = Search(width=3, nbest=3, tokens=40, begin=0, end=[1])

    def best() -> list[tuple[list[int], float]]:
        with torch.no_grad():
            memory = model.remember(source, valid)
        return [(h.ids, h.score) for row in beam(model, [[]] * 4, search, memory) for h in row]

    found = best()
    assert steps_of(model), repeating._REFUSED.get(model)
    plainly(monkeypatch)
    for (ids, score), (want_ids, want) in zip(found, best(), strict=True):
        assert ids == want_ids
        assert score == pytest.approx(want, abs=1e-9)


def test_float32_with_many_rows_uses_other_products_and_says_the_same(monkeypatch):
    model = language_model("attention").float()
    found = generate(model, ragged(9), Settings(tokens=40, greedy=True))
    assert steps_of(model)
    plainly(monkeypatch)
    want = generate(model, ragged(9), Settings(tokens=40, greedy=True))
    assert [g.ids for g in found] == [g.ids for g in want]
    assert [p for g in found for p in g.logprobs] == pytest.approx([p for g in want for p in g.logprobs], abs=1e-4)


@pytest.mark.parametrize("name", ["lstm", "attention"])
def test_the_same_twice_to_the_last_bit(name):
    """The bits do not depend on earlier recordings: the first call records, the second finds."""
    model, settings = language_model(name).float(), Settings(tokens=40, seed=5)
    first, second = generate(model, ragged(1), settings), generate(model, ragged(1), settings)
    assert first[0].ids == second[0].ids
    assert first[0].logprobs == second[0].logprobs
    assert first[0].memory.equals(second[0].memory)
    assert len(steps_of(model)) <= 2  # one for each number of reserved slots


@pytest.mark.parametrize("name", ["lstm", "attention", "ttt"])
def test_streams_of_one_model_do_not_disturb_each_other(name):
    model = language_model(name)
    settings = Settings(tokens=40, greedy=True)
    want = [[int(step.ids[0]) for step in stream(model, [[first]], settings)] for first in (1, 2)]
    both = [stream(model, [[first]], settings) for first in (1, 2)]
    pairs = [[int(step.ids[0]) for step in steps] for steps in zip(*both, strict=True)]
    assert [list(column) for column in zip(*pairs, strict=True)] == want


def test_threads_share_a_model():
    model, settings = language_model("lstm"), Settings(tokens=60, greedy=True)
    want = [generate(model, [[first]], settings)[0].ids for first in range(VOCAB)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda first: generate(model, [[first % VOCAB]], settings)[0].ids, range(4 * VOCAB)))
    assert found == want * 4


def test_the_last_reader_to_leave_puts_training_back():
    model = language_model("lstm")
    modules = list(model.modules())
    modules[-1].training = False
    first, second = reading.undisturbed(modules), reading.undisturbed(modules)
    with torch.enable_grad():  # in one thread, two that overlap leave gradients off
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert not any(module.training for module in modules)
        second.__exit__(None, None, None)
    assert [module.training for module in modules] == [True] * (len(modules) - 1) + [False]


def test_a_recording_is_its_threads_own():
    with ThreadPoolExecutor(1) as pool, readable(), without_looks():
        assert not pool.submit(is_readable).result()
        assert pool.submit(may_look_at, torch.ones(1)).result()
        assert not may_look_at(torch.ones(1))


@pytest.mark.parametrize("name", ["lstm", "attention", "linear attention"])
def test_what_was_handed_out_stays_as_it_is(name):
    steps = stream(language_model(name), [[1]], LONG)
    next(steps), next(steps)
    memory, logits = steps.memory, steps.logits
    before, values = memory.select(slice(None)), logits.clone()
    for _ in range(5):
        next(steps)
    assert memory.equals(before)
    assert torch.equal(logits, values)
    assert not steps.memory.equals(before)


@pytest.mark.parametrize("when", ["between", "within"])
def test_new_weights_are_seen(when, monkeypatch):
    model, other = language_model("lstm"), language_model("lstm", seed=1)

    def said() -> list[int]:
        model.load_state_dict(language_model("lstm").state_dict())
        steps = stream(model, [[1]], Settings(tokens=40, greedy=True))
        head = [int(next(steps).ids[0]) for _ in range(10 if when == "within" else 0)]
        model.load_state_dict(other.state_dict())
        if when == "between":
            steps = stream(model, [[1]], Settings(tokens=40, greedy=True))
        return head + [int(step.ids[0]) for step in steps]

    if when == "between":
        generate(model, [[1]], Settings(tokens=40, greedy=True))
    found = said()
    assert steps_of(model)
    plainly(monkeypatch)
    assert found == said()


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("name", ["lstm", "attention", "linear attention", "ttt"])
def test_what_a_fused_optimiser_wrote_is_seen(name, rows, monkeypatch):
    """It leaves no trace: versions stay, storages stay."""
    settings = Settings(tokens=30, greedy=True)

    def said() -> list[list[int]]:
        model = language_model(name).float()
        optimiser = torch.optim.AdamW(model.parameters(), lr=0.3, fused=True)
        found = [generate(model, [[1]] * rows, settings)[0].ids]
        steps = stream(model, [[1]] * rows, settings)
        within = [int(next(steps).ids[0]) for _ in range(10)]
        for p in model.parameters():
            p.grad = torch.sin(torch.arange(p.numel(), dtype=p.dtype)).view_as(p)
        optimiser.step()
        found.append(within + [int(step.ids[0]) for step in steps])
        found.append(generate(model, [[1]] * rows, settings)[0].ids)
        assert bool(steps_of(model)) == dispatch._switch.is_on
        return found

    first = said()
    assert first[0] != first[2]
    plainly(monkeypatch)
    assert said() == first


def test_a_replaced_parameter_and_a_changed_setting_are_seen(monkeypatch):
    model, settings = language_model("rotary window"), Settings(tokens=30, greedy=True)
    generate(model, [[1]], settings)
    model[-1].linear.weight = torch.nn.Parameter(torch.randn_like(model[-1].linear.weight))
    model[1].mixer.scale = 3.0
    found = generate(model, [[1]], settings)[0].ids
    plainly(monkeypatch)
    assert found == generate(model, [[1]], settings)[0].ids


def test_hooks_are_called():
    model, calls = language_model("lstm"), []
    handle = model[1].register_forward_hook(lambda *args: calls.append(1))
    generate(model, [[1]], Settings(tokens=30))
    assert len(calls) == 31  # the prompt, and all that was generated
    handle.remove()
    assert not steps_of(model)


class Odd(SequenceLayer[Hidden]):
    """Decides in Python, where no recording can see it: every odd id is answered otherwise."""

    width, width_out, vocab_size = None, VOCAB, VOCAB

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> Hidden:
        return Hidden(hidden=torch.arange(float(VOCAB)).repeat(batch_size, 1))

    def read(self, x: Tensor, memory: Hidden, valid: Tensor | None) -> tuple[Tensor, Hidden]:
        is_odd = bool(x[0, -1] % 2) if self.how == "bool" else int(x.numpy()[0, -1]) % 2
        by = 1 if is_odd else 2
        rolled = torch.cat([memory.hidden[:, -by:], memory.hidden[:, :-by]], dim=1)
        after = rolled + x[:, -1:].to(memory.hidden) + 1
        return (after.sin() * 3)[:, None].expand(-1, x.shape[1], -1), Hidden(hidden=after.cos() * 5)


@pytest.mark.parametrize("how", ["bool", "numpy"])
def test_what_decides_in_python_is_not_repeated(how, monkeypatch):
    model = Odd(how)
    found = generate(model, [[1]], Settings(tokens=40, greedy=True))[0].ids
    assert "depends on values" in repeating._REFUSED[model] or "differs" in repeating._REFUSED[model]
    plainly(monkeypatch)
    assert found == generate(model, [[1]], Settings(tokens=40, greedy=True))[0].ids


class Overflowing(Odd):
    """Remembers ever larger numbers, to infinity and beyond."""

    def read(self, x: Tensor, memory: Hidden, valid: Tensor | None) -> tuple[Tensor, Hidden]:
        after = memory.hidden * 1e4 + x[:, -1:] + 1
        return (after.tanh() + x[..., None])[:, -1:].expand(-1, x.shape[1], -1), Hidden(hidden=after)


def test_infinities_are_as_quiet_as_in_torch(monkeypatch):
    model = Overflowing("bool")
    found = generate(model, [[1]], Settings(tokens=40, greedy=True))[0]
    assert steps_of(model), repeating._REFUSED.get(model)
    assert found.memory.hidden.isinf().any()
    plainly(monkeypatch)
    assert found.ids == generate(model, [[1]], Settings(tokens=40, greedy=True))[0].ids


def test_short_generations_are_not_recorded():
    model = language_model("lstm")
    generate(model, [[1]], Settings(tokens=FEWEST - 1))
    assert not steps_of(model)
