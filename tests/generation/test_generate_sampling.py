"""Generation by steps: equal to reading everything anew, whatever the batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from generate_models import FAMILIES, VOCAB, WIDTH, language_model, ragged, slow_greedy, translator
from recollect.core.compose import Bidirectional, Stack
from recollect.core.validate import ContractError
from recollect.generation import prefill as reading
from recollect.generation.log_probability import score
from recollect.generation.sampling import generate, stream
from recollect.generation.settings import Settings
from recollect.layers.pointwise import Embedding, Linear
from recollect.layers.recurrent.lstm import LSTM

GREEDY = Settings(tokens=12, greedy=True)
SAMPLED = Settings(tokens=12, temperature=0.9, top_p=0.95, min_p=0.01, seed=5)


def same(a, b):
    assert (a.ids, a.reason) == (b.ids, b.reason)
    assert a.logprobs == pytest.approx(b.logprobs, abs=1e-9)
    assert a.memory.equals(b.memory, 1e-9)
    torch.testing.assert_close(a.logits, b.logits)


@pytest.mark.parametrize("name", FAMILIES)
def test_cached_equals_reading_everything_anew(name):
    model, prompts = language_model(name), ragged(8)
    found = generate(model, prompts, GREEDY)
    assert [g.ids for g in found] == [slow_greedy(model, p, 12) for p in prompts]
    assert len({tuple(g.ids) for g in found}) > 1


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("settings", [GREEDY, SAMPLED, Settings(tokens=12, stop=[0, 1], seed=2)])
def test_ragged_prompts_equal_alone_in_any_order(name, settings):
    model, prompts = language_model(name), ragged(8, seed=1)
    together = generate(model, prompts, settings)
    order = [5, 0, 7, 2, 1, 6, 4, 3]
    shuffled = generate(model, [prompts[i] for i in order], settings, rows=order)
    for place, i in enumerate(order):
        same(shuffled[place], together[i])
    for i in (0, 3, 7):
        same(generate(model, [prompts[i]], settings, rows=[i])[0], together[i])


@pytest.mark.parametrize("name", ["lstm", "attention", "ttt"])
@pytest.mark.parametrize("settings", [GREEDY, Settings(tokens=20, stop=[0], seed=1)])
def test_streaming_equals_collected(name, settings):
    model, prompts = language_model(name), ragged(5, seed=2)
    steps = stream(model, prompts, settings)
    ids, logprobs = [[] for _ in prompts], [[] for _ in prompts]
    for step in steps:
        for row in step.valid.nonzero()[:, 0].tolist():
            ids[row].append(int(step.ids[row]))
            logprobs[row].append(float(step.logprobs[row]))
        assert (step.ids[~step.valid] == -1).all()
        assert (step.logprobs[~step.valid] == 0).all()
    found = generate(model, prompts, settings)
    assert ids == [g.ids for g in found]
    assert logprobs == [g.logprobs for g in found]
    assert steps.reasons == [g.reason for g in found]


@pytest.mark.parametrize("name", FAMILIES)
def test_memory_and_logits_afterwards_have_read_everything(name):
    model, prompts = language_model(name), ragged(4, seed=3)
    model.eval()
    for prompt, g in zip(prompts, generate(model, prompts, Settings(tokens=10, stop=[0, 3])), strict=True):
        with torch.no_grad():
            y, memory = model(torch.tensor([prompt + g.ids]))
        assert g.memory.equals(memory, 1e-9)
        torch.testing.assert_close(g.logits, y[0, -1])


@pytest.mark.parametrize("name", FAMILIES)
def test_going_on_from_a_memory_equals_going_through(name):
    model, prompts = language_model(name), ragged(3, seed=4)
    whole = generate(model, prompts, GREEDY)
    for prompt, want in zip(prompts, whole, strict=True):
        first = generate(model, [prompt], Settings(tokens=5, greedy=True))[0]
        rest = generate(model, [[]], Settings(tokens=7, greedy=True), first.memory, logits=first.logits[None])[0]
        assert first.ids + rest.ids == want.ids
        assert rest.memory.equals(want.memory, 1e-9)


def test_empty_and_full_prompts_go_on_together_from_memories():
    model = language_model("mixed")
    a, b = generate(model, [[1, 2], [3]], Settings(tokens=3, greedy=True))
    memory = type(a.memory).cat([a.memory, b.memory])
    both = generate(model, [[], [4, 5]], GREEDY, memory, logits=torch.stack([a.logits, b.logits]))
    same(both[0], generate(model, [[]], GREEDY, a.memory, logits=a.logits[None])[0])
    same(both[1], generate(model, [[4, 5]], GREEDY, b.memory)[0])


@pytest.mark.parametrize("name", ["lstm", "attention", "rotary window", "ttt", "mixed"])
@pytest.mark.parametrize("reserved", [False, True])
def test_a_given_memory_is_left_as_it_was(name, reserved):
    model = language_model(name)
    memory = generate(model, [[1, 2, 3], [4]], Settings(tokens=2))
    given = type(memory[0].memory).cat([g.memory for g in memory])
    if reserved:
        given = given.reserve(50, in_place=True)
    before = {key: t.clone() for key, t in given.tensors().items()}
    first = generate(model, [[1], [2, 3]], GREEDY, given)
    second = generate(model, [[1], [2, 3]], GREEDY, given)
    assert all(torch.equal(t, before[key]) for key, t in given.tensors().items())
    for a, b in zip(first, second, strict=True):
        same(a, b)


def test_the_memory_of_a_stream_is_a_value():
    steps = stream(language_model("attention"), [[1, 2]], GREEDY)
    next(steps)
    early = steps.memory
    before = {key: t.clone() for key, t in early.tensors().items()}
    list(steps)
    assert all(torch.equal(t, before[key]) for key, t in early.tensors().items())
    assert not early.equals(steps.memory)


def test_a_stopped_row_says_and_remembers_nothing_more():
    model, prompts = language_model("mixed"), ragged(6, seed=7)
    settings = Settings(tokens=30, stop=[2], seed=3)
    found = generate(model, prompts, settings)
    assert {"stop"} <= {g.reason for g in found}
    assert len({len(g.ids) for g in found}) > 1
    for g in found:
        assert 2 not in g.ids[:-1]
        assert (g.ids[-1] == 2) == (g.reason == "stop")


def test_a_row_can_be_halted():
    model = language_model("lstm")
    steps = stream(model, [[1], [2]], GREEDY)
    first = next(steps)
    steps.halt(0)
    rest = list(steps)
    assert steps.reasons == ["stop", "length"]
    assert all(not step.valid[0] for step in rest)
    alone = generate(model, [[1]], Settings(tokens=1, greedy=True))[0]
    assert alone.ids == [int(first.ids[0])]
    assert steps.memory.select([0]).equals(alone.memory, 1e-12)


def test_seeds_reproduce_and_differ():
    model, prompts = language_model("lstm"), [[1, 2]] * 6
    runs = [[g.ids for g in generate(model, prompts, Settings(tokens=20, seed=seed))] for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]
    assert len({tuple(ids) for ids in runs[0]}) == 6  # rows with one prompt draw apart


def test_the_global_generator_is_not_touched():
    before = torch.get_rng_state()
    generate(language_model("markov"), [[1]], SAMPLED)
    torch.manual_seed(0)
    model, state = language_model("lstm"), torch.get_rng_state()
    generate(model, [[1]], SAMPLED)
    assert torch.equal(state, torch.get_rng_state())
    torch.set_rng_state(before)


@pytest.mark.parametrize("name", FAMILIES)
def test_logprobs_are_the_models_own(name):
    model, prompts = language_model(name), ragged(3, seed=5)
    for prompt, g in zip(prompts, generate(model, prompts, SAMPLED), strict=True):
        ids = torch.tensor([prompt + g.ids])
        scores = score(model, ids[:, 1:], begin=ids[:, 0])[0, len(prompt) - 1 :]
        assert g.logprobs == pytest.approx(scores.tolist(), abs=1e-9)


@pytest.mark.parametrize("name", ["lstm", "attention", "ttt", "rotary window"])
def test_length_of_stretches_and_room_do_not_matter(name, monkeypatch):
    model, prompts = language_model(name), ragged(5, seed=6)
    settings = Settings(tokens=25, stop=[1], seed=4)
    want = generate(model, prompts, settings)
    monkeypatch.setattr(reading, "CHUNK", 2)
    monkeypatch.setattr(reading, "RESERVED", 3)
    for a, b in zip(generate(model, prompts, settings), want, strict=True):
        same(a, b)


def test_flags_are_restored_also_between_steps_and_after_errors():
    model = language_model("attention").train()
    model[1].eval()
    flags = [m.training for m in model.modules()]
    steps = stream(model, [[1]], GREEDY)
    for step in steps:
        assert [m.training for m in model.modules()] == flags
        assert not step.logprobs.requires_grad
    with pytest.raises(ContractError):
        generate(model, [[1]], GREEDY, memory=language_model("lstm").initial_memory(1))
    assert [m.training for m in model.modules()] == flags
    assert torch.is_grad_enabled()


def test_dropout_is_off():
    model = language_model("lstm").train()
    assert generate(model, [[1]], GREEDY)[0].ids == generate(model.eval(), [[1]], GREEDY)[0].ids


def test_from_an_encoders_memory():
    model, remember = translator()
    torch.manual_seed(0)
    source, valid = torch.randn(4, 5, WIDTH).double(), torch.arange(5) < torch.tensor([[5], [2], [0], [4]])
    settings = Settings(tokens=8, greedy=True, begin=0)
    together = generate(model, [[], [], [3], []], settings, remember(source, valid))
    for i, prompt in enumerate([[], [], [3], []]):
        length = int(valid[i].sum())
        one = remember(source[i : i + 1, :length], valid[i : i + 1, :length])
        assert generate(model, [prompt], settings, one)[0].ids == together[i].ids
    assert len({tuple(g.ids) for g in together}) > 1
    with pytest.raises(ContractError, match="memory"):
        generate(model, [[1]], settings)


def test_prompts_may_be_lists_arrays_or_tensors():
    model = language_model("lstm")
    want = generate(model, [[1, 2], [3, 4]], GREEDY)
    for prompts in (
        np.array([[1, 2], [3, 4]], dtype=np.uint16),
        torch.tensor([[1, 2], [3, 4]], dtype=torch.int32),
        [np.array([1, 2]), torch.tensor([3, 4])],
    ):
        assert [g.ids for g in generate(model, prompts, GREEDY)] == [g.ids for g in want]


def test_begin_is_read_before_the_prompt():
    model = language_model("lstm")
    with_begin = generate(model, [[], [2]], Settings(tokens=4, greedy=True, begin=5))
    without = generate(model, [[5], [5, 2]], Settings(tokens=4, greedy=True))
    assert [g.ids for g in with_begin] == [g.ids for g in without]


def test_no_tokens_and_no_prompts():
    model = language_model("lstm")
    g = generate(model, [[1, 2]], Settings(tokens=0))[0]
    assert (g.ids, g.logprobs, g.reason) == ([], [], "length")
    assert g.memory.equals(model.eval()(torch.tensor([[1, 2]]))[1], 1e-12)
    assert generate(model, [], GREEDY) == []


def test_prohibited_ids_are_never_said():
    model = language_model("lstm")
    for settings in (Settings(tokens=30, prohibited=[1, 2, 3]), Settings(tokens=9, prohibited=[1, 2, 3], greedy=True)):
        assert not {1, 2, 3} & {i for g in generate(model, ragged(4), settings) for i in g.ids}
    with pytest.raises(ContractError, match="no id that may be chosen"):
        generate(model, [[1]], Settings(prohibited=range(VOCAB)))


def test_a_learned_table_that_is_too_short_is_refused_before_reading():
    model = language_model("attention")
    assert len(generate(model, [[1] * 50], Settings(tokens=10))[0].ids) == 10
    with pytest.raises(ContractError, match=r"prompts\[1\]: got 50 ids and 11 more to come, expected at most 60"):
        stream(model, [[1], [1] * 50], Settings(tokens=11))
    memory = generate(model, [[1] * 30], Settings(tokens=10))[0].memory
    with pytest.raises(ContractError, match="got 40 steps remembered, 5 ids and 16 more to come, expected at most 60"):
        stream(model, [[1] * 5], Settings(tokens=16), memory)


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ([[1], []], r"prompts\[1\]: got no ids, expected at least one, or a begin id"),
        ([[1], [7]], r"prompts\[1\]: got ids from 7 to 7, expected 0 to 6"),
        ([[-1]], r"prompts\[0\]: got ids from -1 to -1"),
        ([1, 2], r"prompts\[0\]: got 1, expected a list of ids"),
        ("ab", "prompts: got 'ab', expected a list of prompts"),
        (["ab"], r"prompts\[0\]: got 'ab', expected a list of ids"),
        ([[1.5]], r"prompts\[0\]: got shape \(1,\) of float64"),
        (torch.tensor([1, 2]), r"prompts: got shape \(2,\), expected \(B, T\)"),
    ],
)
def test_bad_prompts_are_refused_with_the_reason(prompts, message):
    with pytest.raises(ContractError, match=message):
        stream(language_model("lstm"), prompts)


def test_bad_arguments_are_refused_with_the_reason():
    model = language_model("lstm")
    with pytest.raises(ContractError, match="stop: got 9, expected ids from 0 to 6"):
        stream(model, [[1]], Settings(stop=[9]))
    with pytest.raises(ContractError, match="rows: got"):
        stream(model, [[1]], rows=[1, 2])
    with pytest.raises(ContractError, match="memory"):
        stream(model, [[1], [2]], memory=generate(model, [[1]], GREEDY)[0].memory)
    with pytest.raises(ContractError, match=r"logits: got shape \(1, 3\), expected \(1, 7\)"):
        stream(model, [[]], logits=torch.zeros(1, 3))
    both = Bidirectional(LSTM(WIDTH, 4), LSTM(WIDTH, 4))
    blind = Stack(Embedding(VOCAB, WIDTH), both, Linear(8, VOCAB))
    with pytest.raises(ContractError, match="expected one that streams"):
        stream(blind, [[1]])


@pytest.mark.parametrize("name", FAMILIES)
def test_scores_of_ragged_rows_equal_alone_and_sum_to_one(name):
    model, rows = language_model(name), ragged(4, seed=8)
    longest = max(map(len, rows))
    ids = torch.tensor([row + [6] * (longest - len(row)) for row in rows])
    valid = torch.arange(longest) < torch.tensor([[len(row)] for row in rows])
    together = score(model, ids, valid, begin=3)
    assert (together[~valid] == 0).all()
    for i, row in enumerate(rows):
        torch.testing.assert_close(score(model, torch.tensor([row]), begin=3)[0], together[i, : len(row)])
    every = score(model, torch.arange(VOCAB)[:, None], begin=3)
    assert every.exp().sum().item() == pytest.approx(1)


def test_scores_go_on_from_a_memory(monkeypatch):
    model, ids = language_model("mixed"), torch.tensor([[1, 2, 3, 4, 5, 6]])
    whole = score(model, ids, begin=0)
    g = generate(model, [[0, 1, 2]], Settings(tokens=0))[0]
    torch.testing.assert_close(score(model, ids[:, 2:], memory=g.memory, logits=g.logits[None]), whole[:, 2:])
    start = generate(model, [[0, 1]], Settings(tokens=0))[0].memory
    torch.testing.assert_close(score(model, ids[:, 2:], memory=start, begin=2), whole[:, 2:])
    monkeypatch.setattr("recollect.generation.log_probability.CHUNK", 2)
    torch.testing.assert_close(score(model, ids, begin=0), whole)
    assert score(model, ids[:, :0], begin=0).shape == (1, 0)


def test_bad_scores_are_refused_with_the_reason():
    model, ids = language_model("lstm"), torch.tensor([[1, 2]])
    with pytest.raises(ContractError, match="begin, logits: got neither, expected one of them"):
        score(model, ids)
    with pytest.raises(ContractError, match="begin, logits: got both"):
        score(model, ids, begin=1, logits=torch.zeros(1, VOCAB))
    with pytest.raises(ContractError, match="ids: got ids from 1 to 9"):
        score(model, torch.tensor([[1, 9]]), begin=1)
    with pytest.raises(ContractError, match="begin: got ids from 9 to 9"):
        score(model, ids, begin=9)
    with pytest.raises(ContractError, match="valid: got row 0"):
        score(model, ids, torch.tensor([[False, True]]), begin=1)
    with pytest.raises(ContractError, match="at most 60"):
        score(language_model("attention"), torch.ones(1, 61, dtype=torch.long), begin=1)
