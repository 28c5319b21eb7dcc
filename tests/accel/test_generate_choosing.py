"""Choosing in C, and generating many ids without Python between them: the ids of the plain path."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from both_ways import REPEATABLE, assert_same, in_c, plainly, shapes_of
from torch import Tensor

from generate_models import VOCAB, language_model
from recollect.accel.cpu.compiler import NoCompiler
from recollect.accel.cpu.decode import compilation as compiling
from recollect.accel.cpu.decode.choice_loop import MOST, ChoiceInC
from recollect.core.record import readable
from recollect.core.validate import ContractError
from recollect.generation import prefill as reading
from recollect.generation.continuation import generate_text
from recollect.generation.filters import apply_filters, draw, likeliest, prohibit
from recollect.generation.sampling import Step, Stream, generate, stream
from recollect.generation.settings import Settings, compiled
from tiers import slow_after

pytestmark = pytest.mark.usefixtures("compiler")

FILTERS: list[dict[str, Any]] = [
    {},
    {"greedy": True},
    {"temperature": 0.7},
    {"temperature": 1.9},
    {"top_k": 1},
    {"top_k": 3},
    {"top_k": 5000},
    {"top_p": 0.83},
    {"top_p": 1e-9},
    {"top_p": 1.0},
    {"min_p": 0.21},
    {"min_p": 0.0},
    {"prohibited": [0, 2]},
    {"prohibited": [0, 2], "greedy": True},
    {"temperature": 1.3, "top_k": 20, "top_p": 0.91, "min_p": 0.05, "prohibited": [1]},
]


def some_logits(width: int, seed: int, dtype: torch.dtype) -> Tensor:
    """Draw logits (1, V): every third time with ties, every fifth with one of −∞."""
    logits = 3 * torch.randn(1, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    logits = (2 * logits).round() / 2 if seed % 3 == 0 else logits
    logits[0, 3] = -torch.inf if seed % 5 == 0 else logits[0, 3]
    return logits.to(dtype)


def chosen_in_c(logits: Tensor, settings: Settings, seed: int = 0) -> tuple[list[list[int]], list[list[float]], bool]:
    choice = ChoiceInC(settings, [np.random.default_rng(seed)], logits.shape[1])
    return choice.run(None, torch.zeros(1, 1, dtype=torch.long), logits, True, 1, [True])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("width", [4, 65, 1000])
@pytest.mark.parametrize("asked", FILTERS, ids=str)
def test_c_chooses_what_the_filters_say(asked, width, dtype):
    settings, near = Settings(**asked), 1e-12 if dtype == torch.float64 else 1e-5
    for seed in range(30):
        logits, uniform = some_logits(width, seed, dtype), np.random.default_rng(seed).random()
        prohibited = list(settings.prohibited)
        if settings.greedy:
            want = likeliest(logits, prohibited)
        else:
            want = draw(apply_filters(prohibit(logits, prohibited), settings), [uniform])
        before = logits.clone()
        said, log_p, all_read = chosen_in_c(logits, settings, seed)
        assert said == [want.tolist()]
        assert log_p[0] == pytest.approx([float(logits.log_softmax(-1)[0, want[0]])], abs=near)
        assert not all_read
        assert torch.equal(logits, before)


@pytest.mark.parametrize("greedy", [True, False])
@pytest.mark.parametrize("wrong", ["nan", "inf", "nothing", "all prohibited"])
def test_what_cannot_be_chosen_from_is_left_to_python(wrong, greedy):
    logits, prohibited = torch.zeros(1, 4), range(4) if wrong == "all prohibited" else ()
    logits[0, 1] = {"nan": torch.nan, "inf": torch.inf}.get(wrong, 0.0)
    logits = torch.full((1, 4), -torch.inf) if wrong == "nothing" else logits
    assert chosen_in_c(logits, Settings(greedy=greedy, prohibited=prohibited)) == ([], [], True)


# ---- many at once --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", slow_after(1, ["lstm", "attention"]))
def test_every_filter_says_the_same_as_the_plain_way(name):
    model = language_model(name)
    for asked in FILTERS:
        for seed in range(4):
            settings = Settings(tokens=40, seed=seed, **asked)
            assert_same(in_c(model, [[1, 2]], settings), plainly(model, [[1, 2]], settings))


def latest(model: Any, settings: Settings) -> int:
    """Return the id whose first occurrence is the latest."""
    ids = plainly(model, [[1]], settings)[0].ids
    return max(ids, key=ids.index)


@pytest.mark.parametrize("name", REPEATABLE)
def test_stop_ids_end_it_and_it_goes_on_from_there(name):
    model = language_model(name)
    settings = Settings(tokens=50, seed=1, stop=[latest(model, Settings(tokens=50, seed=1))])
    first = in_c(model, [[1]], settings)
    assert_same(first, plainly(model, [[1]], settings))
    assert first[0].reason == "stop"
    assert 4 < len(first[0].ids) < 50
    memory, logits = first[0].memory, first[0].logits[None]
    later = Settings(tokens=45 - len(first[0].ids), seed=7)
    assert_same(in_c(model, [[]], later, memory, logits=logits), plainly(model, [[]], later, memory, logits=logits))


@pytest.mark.parametrize("asked", [{}, {"top_k": 3}, {"greedy": True}], ids=str)
def test_a_stream_says_the_same_to_the_last_bit_however_it_is_looked_at(asked):
    model, settings = language_model("attention").float(), Settings(tokens=45, seed=2, **asked)
    want = in_c(model, [[1, 2, 3]], settings)[0]
    with compiled():
        streams = [stream(model, [[1, 2, 3]], settings) for _ in range(3)]
    one_by_one, looked_at = list(streams[0]), []
    for step in streams[1]:
        looked_at.append(step)
        assert streams[1].memory is not None
        assert streams[1].logits.shape == (1, VOCAB)
    begun = [next(streams[2]) for _ in range(7)] + streams[2].rest()
    for steps in (one_by_one, looked_at, begun):
        assert [step.chosen for step in steps] == [[i] for i in want.ids]
        assert [step.log_p for step in steps] == [[p] for p in want.logprobs]
    assert streams[2].memory.equals(want.memory)
    assert torch.equal(streams[1].logits[0], want.logits)


def test_a_halted_stream_says_no_more():
    with compiled():
        steps = stream(language_model("lstm"), [[1]], Settings(tokens=40))
    next(steps)
    steps.halt(0)
    assert steps.rest() == []
    assert steps.reasons == ["stop"]


def test_draws_that_were_not_used_are_drawn_again():
    """A stop in the middle of a block leaves the generator where single draws would have left it."""
    settings = Settings(tokens=40, seed=3, stop=[2])
    with compiled():
        steps = Stream(language_model("lstm"), [[1]], settings)
    said = steps.rest()
    alone = np.random.default_rng([3, 0])
    alone.random(len(said))
    assert len(said) < 40
    assert steps._generators[0].random() == alone.random()


@pytest.mark.slow
def test_more_than_fit_at_once_past_the_end_of_several_rooms(monkeypatch):
    monkeypatch.setattr(reading, "RESERVED_COMPILED", 48)
    model, settings = language_model("mixed"), Settings(tokens=2 * MOST + 20, seed=4)
    found = in_c(model, [[1]], settings)
    assert len(found[0].ids) == len(found[0].logprobs) == 2 * MOST + 20
    assert len(shapes_of(model)) == 4
    assert_same(found, plainly(model, [[1]], settings))


@pytest.mark.parametrize("greedy", [True, False])
def test_broken_logits_are_complained_of_as_ever(greedy):
    model, settings = language_model("lstm", seed=3), Settings(tokens=40, seed=1, greedy=greedy)
    broken = latest(model, settings)
    assert in_c(model, [[1]], settings)[0].ids.index(broken) > 3
    with torch.no_grad():
        model[0].table.weight[broken] = torch.nan
    with compiled(), pytest.raises(ContractError, match="logits of row 0: got NaN"):
        generate(model, [[1]], settings)


def test_whoever_records_inner_values_gets_the_readable_form():
    model, settings = language_model("lstm"), Settings(tokens=40, greedy=True)
    with compiled():
        steps = stream(model, [[1]], settings)
    begun = [next(steps) for _ in range(5)]
    with readable():
        begun += [next(steps) for _ in range(5)]
    assert [i for step in begun + steps.rest() for i in step.chosen] == plainly(model, [[1]], settings)[0].ids


def test_given_logits_may_be_of_another_kind():
    model, settings = language_model("lstm"), Settings(tokens=40, seed=1)
    memory = model.initial_memory(1)
    logits = torch.linspace(0, 1, VOCAB)[None]
    found = in_c(model, [[]], settings, memory, logits=logits)
    assert_same(found, plainly(model, [[]], settings, memory, logits=logits))


def test_where_the_choice_cannot_be_compiled_nothing_is(monkeypatch):
    def refuse() -> None:
        raise NoCompiler("not today")

    monkeypatch.setattr(compiling, "functions", refuse)
    model, settings = language_model("lstm"), Settings(tokens=40, seed=1)
    with compiled():
        found = generate(model, [[1]], settings)
    assert shapes_of(model) == []
    assert "not today" in compiling.REASONS["compiler"]
    assert_same(found, plainly(model, [[1]], settings))


class Letters:
    """A tokenizer of letters, whose text is decoded one by one."""

    def encode(self, text: str) -> list[int]:
        return [ord(letter) - ord("a") for letter in text]

    def stream(self, after: str = "") -> Letters:
        return self

    def step(self, id: int) -> str:
        return chr(id + ord("a"))


@pytest.mark.parametrize("stop", [(), ("zz",)])
def test_texts_too(stop):
    model, settings = language_model("lstm"), Settings(tokens=60, seed=1, stop=[5])
    want = generate_text(model, Letters(), ["abc"], settings, stop=stop)[0]
    with compiled():
        found = generate_text(model, Letters(), ["abc"], settings, stop=stop)[0]
    assert found.text == want.text
    assert found.generation.ids == want.generation.ids


def test_steps_are_those_of_a_stream():
    with compiled():
        said = Stream(language_model("lstm"), [[1]], Settings(tokens=20)).rest()
    assert all(isinstance(step, Step) and len(step.chosen) == len(step.log_p) == 1 for step in said)
    assert len(said) == 20
