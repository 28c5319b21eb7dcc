"""Layers without an initial memory on an emulated chip: no zeros are allocated, and no result holds a workspace."""

from __future__ import annotations

import os
from copy import deepcopy

import pytest
import torch
from emulated import COMPILER

from recollect import GRU, LSTM, RNN
from recollect.accel.cuda.recurrent.workspace import lay_out
from recollect.core.compose import Stack
from recollect.core.memory import Layers
from recollect.layers.recurrent.recurrence import HiddenCell, Recurrence
from tiers import slow_after

pytestmark = [
    pytest.mark.skipif(COMPILER is None and os.environ.get("CI") != "true", reason="no g++"),
    pytest.mark.usefixtures("poisoned"),
]

BATCH, STEPS, NARROW = 3, 6, torch.bfloat16
LAYERS = {
    "lstm": lambda: LSTM(5, 30),
    "gru": lambda: GRU(5, 30),
    "rnn": lambda: RNN(5, 30),
    "stack": lambda: LSTM.stack(5, 30, 3),
    "two directions": lambda: GRU.stack(5, 30, 1, bidirectional=True),
    "two above two": lambda: LSTM.stack(5, 30, 2, bidirectional=True, dropout=0.5).eval(),
}


@pytest.fixture
def machine(emulate, in_chunks):
    machine = emulate(24)
    in_chunks(2)
    return machine


def draw(dtype=NARROW, *, ragged=False):
    torch.manual_seed(1)
    valid = torch.arange(STEPS) < torch.tensor([[STEPS], [0], [4]]) if ragged else None
    return torch.randn(BATCH, STEPS, 5).to(dtype), valid


def results(layer, x, memory, valid):
    """Return outputs, the memory's parts and all gradients."""
    layer, x = deepcopy(layer), x.clone().requires_grad_()
    y, after = layer(x, memory, valid=valid)
    found = [y, *after.tensors().values()]
    sum(t.float().square().sum() for t in found).backward()
    return [*found, x.grad, *(p.grad for p in layer.parameters())]


def check_same(layer, x, valid):
    """Compare no memory with zeros: the same bits, in the same dtypes."""
    pairs = zip(results(layer, x, None, valid), results(layer, x, layer.initial_memory(BATCH, x), valid), strict=True)
    for bare, from_zeros in pairs:
        assert bare.dtype == from_zeros.dtype
        assert torch.equal(bare, from_zeros)


@pytest.mark.parametrize("ragged", [True, False])
@pytest.mark.parametrize("name", slow_after(1, LAYERS))
def test_as_from_zeros(machine, name, ragged):
    check_same(LAYERS[name]().to(NARROW), *draw(ragged=ragged))
    assert machine.launched


@pytest.mark.parametrize("name", LAYERS)
def test_in_autocast(machine, name):
    with torch.autocast("cpu", NARROW):
        check_same(LAYERS[name](), *draw(torch.float32))
    assert machine.launched


@pytest.mark.parametrize("name", LAYERS)
def test_no_zeros_are_made(machine, name, monkeypatch):
    made = []
    for kind in (LSTM, GRU, RNN):
        make = kind.initial_memory
        counted = lambda *given, make=make, **how: made.append(1) or make(*given, **how)  # noqa: E731
        counted.is_zero = make.is_zero
        monkeypatch.setattr(kind, "initial_memory", counted)
    layer, (x, _) = LAYERS[name]().to(NARROW), draw()
    with torch.no_grad():
        _, memory = layer(x)
        assert not made
        layer(x, memory)  # which nothing is made to be compared with
    assert not made
    assert machine.launched


class OneCell(HiddenCell):
    """The memory of `Ones`."""


class Ones(LSTM):
    """An LSTM with another initial memory, of its own type."""

    def initial_memory(self, batch_size, like=None):
        hidden, cell = (like.new_ones(batch_size, self.hidden) for _ in range(2))
        return OneCell(hidden=hidden, cell=cell)


@pytest.mark.parametrize("build", [lambda: Ones(5, 30), lambda: Stack(Ones(5, 30), Ones(30, 30))])
def test_who_begins_elsewhere_is_asked(machine, build):
    layer, (x, _) = build().to(NARROW), draw()
    check_same(layer, x, None)
    assert machine.launched
    assert all(type(memory) is OneCell for memory in layer(x)[1].within() if not isinstance(memory, Layers))


def test_who_watches_sees_memories(machine):
    layer, (x, _), seen = LSTM.stack(5, 30, 2).to(NARROW), draw(), []
    layer[1].register_forward_pre_hook(lambda _, given: seen.append(given[1]))
    layer(x)
    assert type(seen[0]) is HiddenCell


@pytest.mark.parametrize("dtype", [NARROW, torch.float32])
@pytest.mark.parametrize("trains", [True, False])
def test_what_is_given_back_holds_nothing_else(machine, dtype, trains):
    layer, (x, _) = LSTM(5, 30).to(dtype), draw(dtype)
    with torch.set_grad_enabled(trains), torch.autocast("cpu", NARROW):
        y, memory = layer(x)
    for t in memory.tensors().values():
        assert t.untyped_storage().nbytes() == t.nbytes == t.element_size() * BATCH * 30
    assert y.untyped_storage().nbytes() == y.element_size() * (STEPS + 1) * BATCH * 30


def test_gradients_at_states_hold_nothing_else(machine):
    layer, (x, _) = LSTM(5, 30).to(NARROW), draw()
    memory = layer.initial_memory(BATCH, x)
    first = [t.requires_grad_() for t in memory.tensors().values()]
    gradients = torch.autograd.grad(layer(x, memory)[0].sum(), first)
    assert all(g.untyped_storage().nbytes() == g.nbytes for g in gradients)


def test_what_is_kept_may_be_put_elsewhere(machine):
    layer, (x, valid) = LSTM.stack(5, 30, 2).to(NARROW), draw(ragged=True)
    wanted = results(layer, x, None, valid)
    moved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: moved.append(t) or t.clone(), lambda t: t.clone()):
        found = results(layer, x, None, valid)
    assert moved
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


def test_gradients_twice(machine):
    layer, (x, _) = LSTM(5, 30).to(NARROW), draw()
    y = layer(x)[0].float().sum()
    first, second = (torch.autograd.grad(y, list(layer.parameters()), retain_graph=True) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_parts_lie_apart():
    layout = lay_out({"a": 1, "none": 0, "b": 512, "c": 513})
    assert layout.starts == {"a": 0, "b": 512, "c": 1024}
    assert layout.size == 2048


def test_all_cells_begin_with_zeros():
    assert all(kind.initial_memory.is_zero for kind in (LSTM, GRU, RNN))
    assert not hasattr(Recurrence.initial_memory, "is_zero")
