"""Decode loops: they generate what the model generates, here on a CPU, where a turn is not captured."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from generate_models import FAMILIES, VOCAB, language_model
from recollect.accel.cuda import decode_loop as looping
from recollect.core import dispatch
from recollect.core.validate import ContractError
from recollect.generation.sampling import generate, stream
from recollect.generation.settings import Settings

WAYS = {
    "greedy": Settings(tokens=40, greedy=True),
    "drawn": Settings(tokens=40, seed=3, temperature=0.9),
    "few": Settings(tokens=40, seed=4, top_k=3, top_p=0.9, min_p=0.01),
    "stopped": Settings(tokens=40, seed=5, stop=(2, 5), prohibited=(1,)),
    "long": Settings(tokens=150, seed=6),
}


@pytest.fixture
def looped(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Use decode loops on a CPU too; return the sizes of their blocks of turns."""
    sizes: list[int] = []
    run = looping.Loop.run

    def counted(self: Any, uniform: Any, active: Any) -> Any:
        sizes.append(len(uniform))
        return run(self, uniform, active)

    monkeypatch.setitem(dispatch._forms, ("decode_loop", "cpu"), looping.graph_loop)
    monkeypatch.setattr(dispatch, "_tried", {"cpu", "cuda"})
    monkeypatch.setattr(looping.Loop, "run", counted)
    return sizes


def prompts(rows: int) -> list[list[int]]:
    return [[(i + j) % VOCAB for j in range(1 + i % 3)] for i in range(rows)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("name", FAMILIES)
def test_the_same_is_said_as_without(name, rows, way, looped, monkeypatch):
    if name == "attention" and way == "long":
        pytest.skip("its table has 60 positions")
    model, settings = language_model(name), WAYS[way]
    found = generate(model, prompts(rows), settings)
    assert looped
    monkeypatch.setattr(dispatch._switch, "is_on", False)
    want = generate(model, prompts(rows), settings)
    for a, b in zip(found, want, strict=True):
        assert (a.ids, a.reason) == (b.ids, b.reason)
        assert a.logprobs == pytest.approx(b.logprobs, abs=1e-9)
        assert a.memory.equals(b.memory, tol=1e-9)
        torch.testing.assert_close(a.logits, b.logits, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["lstm", "attention", "ttt"])
def test_a_stream_can_be_looked_at_and_halted_between_turns(name, looped, monkeypatch):
    def told() -> list[Any]:
        found: list[Any] = []
        steps = stream(language_model(name), prompts(3), Settings(tokens=20, seed=1))
        for i, step in enumerate(steps):
            found.append((step.chosen, [round(p, 9) for p in step.log_p]))
            if i == 4:
                steps.halt(1)
            if i in (3, 7):
                found.append((steps.memory.tensors(), steps.logits))
        return found

    found = told()
    assert set(looped) == {1}
    monkeypatch.setattr(dispatch._switch, "is_on", False)
    torch.testing.assert_close(found, told(), rtol=0, atol=1e-9)


def test_a_loop_is_used_again_and_shared_by_nobody(looped):
    model, settings = language_model("lstm"), Settings(tokens=30, greedy=True)
    want = [generate(model, [[i]], settings)[0].ids for i in range(3)]
    assert len(looping._LOOPS[model]) == 1
    mixed = [stream(model, [[i]], settings) for i in range(3)]
    turns = [[next(s).chosen[0] for s in mixed] for _ in range(30)]
    assert [list(column) for column in zip(*turns, strict=True)] == want
    assert len(looping._LOOPS[model]) == 3


@pytest.mark.parametrize("name", ["attention", "mixed"])
def test_nothing_of_an_earlier_generation_is_left_in_the_room(name, looped):
    model, settings = language_model(name), Settings(tokens=30, greedy=True)
    want = generate(model, [[1, 2]], settings)[0]
    ((_, loop),) = looping._LOOPS[model]
    for leaf in loop.leaves:
        if leaf.is_floating_point():
            leaf.fill_(torch.nan)
    found = generate(model, [[1, 2]], settings)[0]
    assert len(looping._LOOPS[model]) == 1
    assert (found.ids, found.logprobs) == (want.ids, want.logprobs)
    assert found.memory.equals(want.memory)


def test_other_weights_are_seen(looped):
    model, settings = language_model("lstm"), Settings(tokens=30, greedy=True)
    before = generate(model, [[1]], settings)[0].ids
    with torch.no_grad():
        model[-1].linear.weight.neg_()
    after = generate(model, [[1]], settings)[0].ids
    model[-1].linear.weight = torch.nn.Parameter(-model[-1].linear.weight.detach())
    assert generate(model, [[1]], settings)[0].ids == before != after


def test_a_model_that_cannot_be_captured_is_asked_itself(looped, monkeypatch):
    def refuse(*args: Any) -> Any:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(looping.Loop, "__init__", refuse)
    model = language_model("lstm")
    found = generate(model, [[1]], Settings(tokens=30, greedy=True))
    assert looped == []
    assert "capturing" in looping.REFUSED[model]
    monkeypatch.setattr(dispatch._switch, "is_on", False)
    assert found[0].ids == generate(model, [[1]], Settings(tokens=30, greedy=True))[0].ids


def test_a_model_that_decides_in_python_is_asked_itself(looped, monkeypatch):
    model = language_model("lstm")
    turn = looping.Loop._turn

    def forgetful(self: Any, model: Any) -> None:
        turn(self, model)
        self.logits.mul_(1.5)  # as where a graph replays what another branch would have done

    monkeypatch.setattr(looping.Loop, "_turn", forgetful)
    found = generate(model, [[1]], Settings(tokens=30, greedy=True))
    assert "differs" in looping.REFUSED[model]
    monkeypatch.setattr(dispatch._switch, "is_on", False)
    assert found[0].ids == generate(model, [[1]], Settings(tokens=30, greedy=True))[0].ids


def test_what_a_model_says_wrong_is_named(looped):
    model = language_model("lstm")
    with torch.no_grad():
        model[-1].linear.weight.fill_(torch.nan)
    with pytest.raises(ContractError, match="logits of row 0"):
        generate(model, [[1]], Settings(tokens=30, greedy=True))
