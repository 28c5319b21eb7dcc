"""Compiled steps: they generate what the model generates, and nothing changes where there is no compiler."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from both_ways import GREEDY, REPEATABLE, assert_same, in_c, plainly, shapes_of

from generate_models import language_model
from recollect.accel.cpu import compiler as c_compiler
from recollect.accel.cpu.decode import choice_loop, compilation as compiling
from recollect.accel.cpu.decode.c_operations import EMITS
from recollect.accel.cpu.decode.choice_loop import ChoiceInC
from recollect.generation import prefill as reading
from recollect.generation.sampling import generate
from recollect.generation.settings import Settings, compiled
from recollect.models import language, translation
from recollect.models.language import LanguageConfig, LanguageModel
from recollect.models.translation import TranslationConfig, Translator

pytestmark = pytest.mark.usefixtures("compiler")
aten = torch.ops.aten


# ---- models --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REPEATABLE)
def test_the_same_is_said_as_without(name):
    model, tokens = language_model(name), 50 if name == "attention" else 70  # it has 60 positions
    both = [Settings(tokens=tokens, seed=1), Settings(tokens=tokens, greedy=True)]
    found = [in_c(model, [[1, 2, 3]], settings) for settings in both]
    for settings, said in zip(both, found, strict=True):
        assert_same(said, plainly(model, [[1, 2, 3]], settings))


@pytest.mark.parametrize("max_length", [None, 64])
@pytest.mark.parametrize("family", [f for f in language.FAMILIES if f != "markov"])
def test_language_models(family, max_length):
    torch.manual_seed(0)
    config = LanguageConfig(family, 7, width=16, heads=2, max_length=max_length, mini_batch=4)
    model = LanguageModel(config).double()
    assert_same(in_c(model, [[1]], GREEDY), plainly(model, [[1]], GREEDY))


OPTIONS: list[dict[str, Any]] = [
    {},
    {"maxout": True, "activation": "swiglu", "norm": "pre"},
    {"cell": "gru", "reset": "before", "activation": "gelu"},
    {"cell": "lstm", "activation": "gelu_tanh"},
    *({"alignment": way} for way in translation.ALIGNMENTS[1:]),
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("family", translation.FAMILIES)
def test_translators(family, options):
    torch.manual_seed(0)
    model = Translator(TranslationConfig(family, 9, 11, width=12, hidden=12, heads=2, **options)).double().eval()
    with torch.no_grad():
        memory = model.remember(torch.randint(9, (1, 6)), torch.tensor([[True] * 4 + [False] * 2]))
    settings = Settings(tokens=40, begin=0, seed=2)
    found = in_c(model, [[]], settings, memory)
    assert_same(found, plainly(model, [[]], settings, memory))


@pytest.mark.parametrize("name", ["lstm", "attention", "ttt mlp"])
def test_float32(name):
    model = language_model(name).float()
    found, want = in_c(model, [[1]], GREEDY), plainly(model, [[1]], GREEDY)
    assert found[0].logits.dtype == torch.float32
    assert_same(found, want, 1e-3)  # forty steps that each begin from the last one's rounding


def test_room_grows(monkeypatch):
    monkeypatch.setattr(reading, "RESERVED_COMPILED", 48)
    model, settings = language_model("mixed"), Settings(tokens=140, greedy=True)
    found = in_c(model, [[1]], settings)
    assert len(shapes_of(model)) == 3
    assert_same(found, plainly(model, [[1]], settings))


def test_new_weights_are_seen():
    model = language_model("lstm")
    first = in_c(model, [[1]], GREEDY)[0].ids
    with torch.no_grad():
        model[-1].linear.weight.mul_(-1)
        model[1].weight_hh.add_(0.5)
    found = in_c(model, [[1]], GREEDY)
    assert found[0].ids != first
    assert_same(found, plainly(model, [[1]], GREEDY))


@pytest.mark.parametrize("name", ["lstm", "attention"])
def test_the_same_twice_to_the_last_bit(name):
    """The bits do not depend on earlier recordings, nor on the cache."""
    model, other = language_model(name).float(), language_model(name).float()
    said = [in_c(m, [[1]], Settings(tokens=40, seed=5))[0] for m in (model, model, other)]
    for later in said[1:]:
        assert (later.ids, later.logprobs) == (said[0].ids, said[0].logprobs)
        assert later.memory.equals(said[0].memory)


def test_only_long_generations_are_compiled_unless_requested():
    model, many = language_model("lstm"), Settings(tokens=compiling.MANY, greedy=True)
    generate(model, [[1]], GREEDY)
    assert shapes_of(model) == []
    generate(model, [[1]], many)
    assert shapes_of(model) == [(1, False)]
    generate(model, [[1], [2]], many)
    with compiled():
        generate(model, [[1], [2], [3]], GREEDY)
    assert shapes_of(model) == [(1, False), (2, True), (4, True)]


@pytest.mark.parametrize("family", ["transformer", "bahdanau"])
def test_sources_of_many_lengths_and_batches_of_many_rows_share_steps(family):
    torch.manual_seed(0)
    model = Translator(TranslationConfig(family, 9, 11, width=12, hidden=12, heads=2)).double().eval()
    settings = Settings(tokens=compiling.MANY_AFTER_SOURCE, begin=0, stop=[1], seed=3)
    for rows, length, steps in [(1, 3, 1), (1, 32, 1), (5, 20, 2), (8, 7, 2), (1, 33, 3), (6, 1, 3)]:
        valid = torch.arange(length) < torch.randint(length + 1, (rows, 1))
        with torch.no_grad():
            memory = model.remember(torch.randint(9, (rows, length)), valid)
        found = generate(model, [[]] * rows, settings, memory)
        assert len(shapes_of(model)) == steps
        assert_same(found, plainly(model, [[]] * rows, settings, memory))


def test_short_targets_are_read_with_the_model():
    model = Translator(TranslationConfig("transformer", 9, 11, width=12, hidden=12, heads=2)).eval()
    with torch.no_grad():
        memory = model.remember(torch.randint(9, (1, 6)))
    generate(model, [[]], Settings(tokens=compiling.MANY_AFTER_SOURCE - 1, begin=0), memory)
    assert shapes_of(model) == []


def test_many_rows_are_read_with_the_model(monkeypatch):
    monkeypatch.setattr("recollect.accel.cpu.decode.repeated_step.MOST_ROWS", 2)
    model = language_model("lstm")
    with compiled():
        generate(model, [[1], [2], [3]], GREEDY)
    assert shapes_of(model) == []


@pytest.mark.parametrize("rows", [2, 9, 33])
@pytest.mark.parametrize("name", ["lstm", "attention", "mixed"])
def test_several_rows_of_which_some_end(name, rows):
    model, prompts = language_model(name), [[i % 7] * (1 + i % 3) for i in range(rows)]
    third = plainly(model, prompts, Settings(tokens=40, seed=1))[0].ids[2]
    settings = Settings(tokens=40, seed=1, stop=[third])
    found = in_c(model, prompts, settings)
    assert shapes_of(model) == [({2: 2, 9: 16, 33: 48}[rows], True)]
    assert rows == 2 or len({len(g.ids) for g in found}) > 1
    assert_same(found, plainly(model, prompts, settings))


# ---- the compiler --------------------------------------------------------------------------------


@pytest.mark.parametrize("named", ["/bin/false", "/no/such/compiler"])
def test_without_a_compiler_the_model_reads(named, monkeypatch, tmp_path):
    monkeypatch.setenv("CC", named)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model = language_model("lstm")
    with compiled():
        found = generate(model, [[1]], GREEDY)
    assert shapes_of(model) == []
    assert named in compiling.REASONS["compiler"]
    assert not list(tmp_path.rglob("*.so"))
    assert_same(found, plainly(model, [[1]], GREEDY))


def test_a_compiler_without_openmp_will_do(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(c_compiler, "EXTRAS", (("--no-such-flag",), ("-fopenmp-simd",)))
    assert_same(in_c(language_model("lstm"), [[1]], GREEDY), plainly(language_model("lstm"), [[1]], GREEDY))


@pytest.mark.parametrize("harm", ["cut", "other bytes", "gone", "no record"])
def test_a_broken_library_is_built_again(harm, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    text = "int one(void) { return 1; }"
    assert c_compiler.load(text).one() == 1
    (library,) = tmp_path.rglob("*.so")
    whole = library.read_bytes()
    library.unlink()  # it is in use: what is mapped must stay as it is
    if harm in ("cut", "other bytes"):
        library.write_bytes(whole[:100] + (b"" if harm == "cut" else bytes(len(whole) - 100)))
    elif harm == "no record":
        library.write_bytes(whole)
        (library.parent / "parts.json").write_text("{", encoding="utf-8")
    assert c_compiler.load(text).one() == 1
    assert library.read_bytes() == whole


def test_a_compiled_step_that_differs_is_not_used(monkeypatch):
    wrong = EMITS | {aten.tanh.default: EMITS[aten.sigmoid.default]}
    monkeypatch.setattr("recollect.accel.cpu.decode.c_operations.EMITS", wrong)
    model = language_model("lstm")
    with compiled():
        found = generate(model, [[1]], GREEDY)
    assert shapes_of(model) == []
    assert "differs" in compiling.REASONS["differs"]
    assert_same(found, plainly(model, [[1]], GREEDY))


def test_long_steps_are_interrupted_often(monkeypatch):
    model, begun = language_model("lstm"), []
    run = ChoiceInC.run
    monkeypatch.setattr(ChoiceInC, "run", lambda *args: (begun.append(args[-2]), run(*args))[1])
    monkeypatch.setattr(choice_loop, "SOON", 0.0)
    in_c(model, [[1]], GREEDY)
    assert set(begun) == {1}
    monkeypatch.setattr(choice_loop, "SOON", 1e9)
    in_c(model, [[1]], GREEDY)
    assert max(begun) > 8
