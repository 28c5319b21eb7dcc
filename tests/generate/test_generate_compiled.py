"""Compiled steps: what they say is what the model says, and where there is no compiler nobody notices."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from generate_models import FAMILIES, language_model
from test_generate_lowering import EXAMPLES, MASK, X, Y, draw
from torch import Tensor

from recollect.generate import Generation, Settings, compiled, compiling, generate, reading, repeating
from recollect.generate.c_operations import EMITS, emit
from recollect.generate.c_source import Source, Uncovered
from recollect.generate.compiling import Compiled
from recollect.generate.lowering import LOWERINGS
from recollect.kernels import c_compiler
from recollect.models import language, translation
from recollect.models.language import LanguageConfig, LanguageModel
from recollect.models.translation import TranslationConfig, Translator

aten = torch.ops.aten
REPEATABLE = [name for name in FAMILIES if name != "markov"]
GREEDY = Settings(tokens=40, greedy=True)


@pytest.fixture(scope="module")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def cache(shared_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Need a compiler, and keep what it makes out of the user's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared_cache))
    try:
        c_compiler.find_compiler()
    except OSError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))
    compiling.REASONS.clear()
    return shared_cache


def ways(model: Any) -> list[bool]:
    """Say of each recorded step whether it was compiled."""
    return [step.whole is not None for step in repeating._RECORDED.get(model, [])]


def in_c(model: Any, *args: Any, **kwargs: Any) -> list[Generation]:
    with compiled():
        found = generate(model, *args, **kwargs)
    assert ways(model), repeating._REFUSED.get(model)
    assert all(ways(model)), compiling.REASONS
    return found


def plainly(monkeypatch: pytest.MonkeyPatch, *args: Any, **kwargs: Any) -> list[Generation]:
    monkeypatch.setattr(reading, "FEWEST", 10**9)
    return generate(*args, **kwargs)


def assert_same(found: list[Generation], want: list[Generation], near: float = 1e-9) -> None:
    for a, b in zip(found, want, strict=True):
        assert a.ids == b.ids
        assert a.logprobs == pytest.approx(b.logprobs, abs=near)
        assert a.memory.equals(b.memory, near)
        assert torch.allclose(a.logits, b.logits, near, near)


# ---- operations ----------------------------------------------------------------------------------

MORE: dict[Any, list[tuple[Any, ...]]] = {
    **{does: [(X,), (X * 100,)] for does in (aten.gelu.default, aten.elu.default, aten.silu.default, aten.abs.default)},
    aten.softplus.default: [(X,), (X * 100,)],
    aten.log.default: [(X.abs(),)],
    aten.maximum.default: [(X, Y), (X, Y.masked_fill(MASK, torch.nan))],
    aten.minimum.default: [(X, Y), (X.masked_fill(MASK, torch.nan), Y)],
    aten.clamp.default: [(X, -0.5, 0.5), (torch.arange(5), None, 3), (torch.arange(5), 2)],
    aten.remainder.Scalar: [(torch.arange(-5, 5), 3)],
    aten.mm.default: [(draw(n, 67), draw(9, 67).t()) for n in (1, 3)] + [(draw(1, 7), draw(7, 130)), (X, Y.t())],
    aten.addmm.default: [(draw(9), draw(1, 5), draw(9, 5).t()), (draw(1, 70), draw(1, 6), draw(6, 70))],
    aten.amax.default: [(X, [1]), (X.masked_fill(MASK, torch.nan), [0], True)],
    aten.argmax.default: [(X, 1), (X.round(), 0, True)],
    aten.gather.default: [(X, 1, torch.tensor([[0, 3], [1, 1], [2, 0]]))],
    aten.scatter.value: [(X, 1, torch.tensor([[1], [0], [3]]), 2.0)],
    aten.pow.Tensor_Scalar: [(X, 3)],
    aten.tanh.default: [(X * 1e-9,), (torch.tensor([torch.inf, -torch.inf, torch.nan, 800.0], dtype=torch.float64),)],
    aten.exp.default: [(torch.tensor([torch.inf, -torch.inf, torch.nan, 709.5, -740.0, 720.0], dtype=torch.float64),)],
    aten.sigmoid.default: [(torch.tensor([torch.inf, -torch.inf, torch.nan, -720.0], dtype=torch.float64),)],
    aten._softmax.default: [(torch.full((2, 3), -torch.inf), -1, False), (draw(3, 50, 2), 1, False)],
    aten.sum.dim_IntList: [(MASK, [1]), (draw(2, 3, 4).transpose(1, 2), [2]), (draw(2, 3, 4), [1])],
    aten.add.Tensor: [(torch.arange(4), 1), (X, torch.arange(4)), (X, 0.1)],
}


def test_all_that_numpy_does_can_be_compiled():
    assert set(LOWERINGS) <= set(EMITS)
    assert set(EMITS) == set(EXAMPLES) | set(MORE)


def again(does: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Give what C says and what torch says."""
    given = does(*args, **kwargs)
    given = given[0] if isinstance(given, tuple) else given
    want, source = given.clone(), Source()
    emit(source, does, args, kwargs, [given])
    given.fill_(1) if does is not aten.index_put_.default else None
    Compiled(source)()
    return given, want


@pytest.mark.parametrize("does", EMITS, ids=str)
def test_c_does_what_torch_does(does):
    for args in [*EXAMPLES.get(does, []), *MORE.get(does, [])]:
        found, want = again(does, args, {})
        assert torch.allclose(found.double(), want.double(), 1e-12, 1e-12, equal_nan=True)


@pytest.mark.parametrize(
    "does", [d for d in EMITS if d not in (aten.embedding.default, aten.index_put_.default)], ids=str
)
def test_in_float32_too(does):
    def narrow(value: Any) -> Any:
        if isinstance(value, list):
            return [narrow(v) for v in value]
        return value.float() if isinstance(value, Tensor) and value.is_floating_point() else value

    for args in [*EXAMPLES.get(does, []), *MORE.get(does, [])]:
        found, want = again(does, tuple(narrow(list(args))), {})
        assert torch.allclose(found.double(), want.double(), 1e-5, 1e-6, equal_nan=True)


@pytest.mark.parametrize(
    ("does", "args", "kwargs"),
    [
        (aten.gelu.default, (X * 3,), {"approximate": "tanh"}),
        (aten.add.Tensor, (X, Y), {"alpha": 2}),
        (aten.sub.Tensor, (X, Y), {"alpha": 0.5}),
        (aten._to_copy.default, (X,), {"dtype": torch.float32}),
        (aten._to_copy.default, (X.round(),), {"dtype": torch.bool}),
        (aten._to_copy.default, (MASK,), {"dtype": torch.int64}),
    ],
)
def test_by_name(does, args, kwargs):
    found, want = again(does, args, kwargs)
    assert torch.allclose(found.double(), want.double(), 1e-12, 1e-12)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("lies", ["rows", "columns", "batch"])
def test_large_products_are_shared_and_say_the_same_to_the_last_bit(threads, lies):
    x, y = draw(5, 1, 300).float(), draw(5, 401, 300).float().transpose(1, 2)
    y = y if lies != "columns" else y.contiguous()
    out, source = torch.zeros(5, 1, 401), Source()
    if lies == "batch":
        emit(source, aten.bmm.default, (x, y), {}, [out])
    else:
        emit(source, aten.mm.default, (x[0], y[0]), {}, [out[0]])
    step, said = Compiled(source), []
    for count in (1, threads):
        out.zero_()
        step._alone = 0
        with compiling.cores(count):
            step()
        said.append(out.clone())
    assert torch.equal(*said)
    assert torch.allclose(
        said[0] if lies == "batch" else said[0][0], x @ y if lies == "batch" else x[0] @ y[0], 1e-4, 1e-4
    )


def test_what_is_not_covered_is_said():
    with pytest.raises(Uncovered, match="erfinv"):
        emit(Source(), aten.erfinv.default, (X,), {}, [X])
    with pytest.raises(Uncovered, match="power"):
        emit(Source(), aten.pow.Tensor_Scalar, (X, 0.3), {}, [X])
    with pytest.raises(Uncovered, match="bfloat16"):
        emit(Source(), aten.neg.default, (X.bfloat16(),), {}, [X.bfloat16()])


# ---- models --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REPEATABLE)
def test_the_same_is_said_as_without(name, monkeypatch):
    model, tokens = language_model(name), 50 if name == "attention" else 70  # it has 60 positions
    both = [Settings(tokens=tokens, seed=1), Settings(tokens=tokens, greedy=True)]
    found = [in_c(model, [[1, 2, 3]], settings) for settings in both]
    for settings, said in zip(both, found, strict=True):
        assert_same(said, plainly(monkeypatch, model, [[1, 2, 3]], settings))


@pytest.mark.parametrize("max_length", [None, 64])
@pytest.mark.parametrize("family", [f for f in language.FAMILIES if f != "markov"])
def test_language_models(family, max_length, monkeypatch):
    torch.manual_seed(0)
    config = LanguageConfig(family, 7, width=16, heads=2, max_length=max_length, mini_batch=4)
    model = LanguageModel(config).double()
    assert_same(in_c(model, [[1]], GREEDY), plainly(monkeypatch, model, [[1]], GREEDY))


OPTIONS: list[dict[str, Any]] = [
    {},
    {"maxout": True, "activation": "swiglu", "norm": "pre"},
    {"cell": "gru", "reset": "before", "activation": "gelu"},
    {"cell": "lstm", "activation": "gelu_tanh"},
    *({"alignment": way} for way in translation.ALIGNMENTS[1:]),
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("family", translation.FAMILIES)
def test_translators(family, options, monkeypatch):
    torch.manual_seed(0)
    model = Translator(TranslationConfig(family, 9, 11, width=12, hidden=12, heads=2, **options)).double().eval()
    with torch.no_grad():
        memory = model.remember(torch.randint(9, (1, 6)), torch.tensor([[True] * 4 + [False] * 2]))
    settings = Settings(tokens=40, begin=0, seed=2)
    found = in_c(model, [[]], settings, memory)
    assert_same(found, plainly(monkeypatch, model, [[]], settings, memory))


@pytest.mark.parametrize("name", ["lstm", "attention", "ttt mlp"])
def test_float32(name, monkeypatch):
    model = language_model(name).float()
    found, want = in_c(model, [[1]], GREEDY), plainly(monkeypatch, model, [[1]], GREEDY)
    assert found[0].logits.dtype == torch.float32
    assert_same(found, want, 1e-3)  # forty steps that each begin from the last one's rounding


def test_room_grows(monkeypatch):
    model, settings = language_model("mixed"), Settings(tokens=140, greedy=True)
    found = in_c(model, [[1]], settings)
    assert len(ways(model)) == 3
    assert_same(found, plainly(monkeypatch, model, [[1]], settings))


def test_new_weights_are_seen(monkeypatch):
    model = language_model("lstm")
    first = in_c(model, [[1]], GREEDY)[0].ids
    with torch.no_grad():
        model[-1].linear.weight.mul_(-1)
        model[1].weight_hh.add_(0.5)
    found = in_c(model, [[1]], GREEDY)
    assert found[0].ids != first
    assert_same(found, plainly(monkeypatch, model, [[1]], GREEDY))


@pytest.mark.parametrize("name", ["lstm", "attention"])
def test_the_same_twice_to_the_last_bit(name, monkeypatch):
    """Whatever is recorded, and whatever lies in the cache."""
    model, other = language_model(name).float(), language_model(name).float()
    said = [in_c(m, [[1]], Settings(tokens=40, seed=5))[0] for m in (model, model, other)]
    for later in said[1:]:
        assert (later.ids, later.logprobs) == (said[0].ids, said[0].logprobs)
        assert later.memory.equals(said[0].memory)


def test_only_long_generations_of_one_row_are_compiled(monkeypatch):
    model = language_model("lstm")
    generate(model, [[1]], GREEDY)
    assert ways(model) == [False]
    generate(model, [[1]], Settings(tokens=compiling.MANY, greedy=True))
    assert ways(model) == [False, True]
    with compiled():
        generate(model, [[1], [2]], GREEDY)
    assert ways(model) == [False, True, False]


# ---- the compiler --------------------------------------------------------------------------------


@pytest.mark.parametrize("named", ["/bin/false", "/no/such/compiler"])
def test_without_a_compiler_numpy_does_it(named, monkeypatch, tmp_path):
    monkeypatch.setenv("CC", named)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model = language_model("lstm")
    with compiled():
        found = generate(model, [[1]], GREEDY)
    assert ways(model) == [False]
    assert named in compiling.REASONS["compiler"]
    assert not list(tmp_path.rglob("*.so"))
    assert_same(found, plainly(monkeypatch, model, [[1]], GREEDY))


def test_a_compiler_without_openmp_will_do(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(c_compiler, "EXTRAS", (("--no-such-flag",), ("-fopenmp-simd",)))
    assert_same(
        in_c(language_model("lstm"), [[1]], GREEDY), plainly(monkeypatch, language_model("lstm"), [[1]], GREEDY)
    )


@pytest.mark.parametrize("harm", ["cut", "other bytes", "gone", "no record"])
def test_a_broken_library_is_built_again(harm, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    want = in_c(language_model("lstm"), [[1]], GREEDY)
    (library,) = tmp_path.rglob("*.so")
    whole = library.read_bytes()
    library.unlink()  # it is in use: what is mapped must stay as it is
    if harm in ("cut", "other bytes"):
        library.write_bytes(whole[:100] + (b"" if harm == "cut" else bytes(len(whole) - 100)))
    elif harm == "no record":
        library.write_bytes(whole)
        (library.parent / "parts.json").write_text("{", encoding="utf-8")
    assert_same(in_c(language_model("lstm"), [[1]], GREEDY), want, 0)
    assert library.read_bytes()[:100] == whole[:100]
    assert len(library.read_bytes()) == len(whole)


def test_a_compiled_step_that_differs_is_not_used(monkeypatch):
    wrong = EMITS | {aten.tanh.default: EMITS[aten.sigmoid.default]}
    monkeypatch.setattr("recollect.generate.c_operations.EMITS", wrong)
    model = language_model("lstm")
    with compiled():
        found = generate(model, [[1]], GREEDY)
    assert ways(model) == [False]
    assert "differs" in compiling.REASONS["differs"]
    assert_same(found, plainly(monkeypatch, model, [[1]], GREEDY))


def test_one_thread_where_several_are_slower(monkeypatch):
    source = Source()
    emit(source, aten.neg.default, (X,), {}, [torch.empty_like(X)])
    step, used, now = Compiled(source), [], [0.0]

    def does(table: Any, threads: int) -> None:
        used.append(threads)
        now[0] += 1.0 if threads == 1 else 100.0

    step._does = does
    monkeypatch.setattr(compiling, "perf_counter", lambda: now[0])
    with compiling.cores(2):
        for _ in range(600):
            step()
    assert used.count(2) < 6
