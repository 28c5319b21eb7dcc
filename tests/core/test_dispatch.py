"""The wall: who asks for fast forms, with what, and that nothing is lost without them."""

from __future__ import annotations

import sys

import pytest
import torch

from recollect import GRU, LSTM
from recollect.core import dispatch
from recollect.core.compose import Bidirectional, Stack
from recollect.core.memory import Both, Layers, Nothing
from recollect.core.record import readable
from recollect.layers.pointwise import Dropout, FeedForward, Linear
from recollect.layers.recurrent.recurrence import HiddenCell, zero_memory


@pytest.fixture(autouse=True)
def switched_on(monkeypatch):
    """Ask for forms also where all tests run with RECOLLECT_ACCEL=off."""
    monkeypatch.setattr(dispatch._switch, "is_on", True)


@pytest.fixture
def planted(monkeypatch):
    """Offer forms for the CPU: a call adds what it was given, and returns what is asked for."""
    monkeypatch.setattr(dispatch, "_forms", {})
    monkeypatch.setattr(dispatch, "_tried", {"cpu"})
    calls = []

    def plant(hook, answer=None):
        dispatch.register(hook, "cpu", lambda *given: calls.append((hook, *given)) or (answer and answer(*given)))
        return calls

    return plant


def ones(layer, x, memory, valid):
    """Stand in for a form of an LSTM."""
    y = torch.ones(*x.shape[:2], layer.width_out)
    return y, HiddenCell(hidden=y[:, -1], cell=y[:, -1])


def test_a_layer_is_asked_for_with_and_without_a_memory(planted, monkeypatch):
    calls, layer, x = planted("layer", ones), LSTM(3, 4), torch.randn(2, 5, 3)
    monkeypatch.setattr(LSTM, "initial_memory", zero_memory(lambda *_, **__: pytest.fail("a memory was made")))
    y, memory = layer(x)
    assert torch.equal(y, torch.ones(2, 5, 4))
    layer(x, memory)
    assert [call[3] for call in calls] == [None, memory]


def test_outputs_of_a_form_are_zero_at_padding(planted):
    planted("layer", ones)
    valid = torch.tensor([[True, True], [True, False]])
    y, _ = LSTM(3, 4)(torch.randn(2, 2, 3), valid=valid)
    assert y[1, 1].eq(0).all()
    assert y[0].eq(1).all()


def test_where_no_form_applies_the_layer_reads(planted):
    calls, layer, x = planted("layer"), LSTM(3, 4), torch.randn(2, 5, 3)
    y, _ = layer(x)
    assert len(calls) == 1
    with dispatch.without_accel():
        assert torch.equal(layer(x)[0], y)
    with readable():
        layer(x)
    assert len(calls) == 1


def test_layers_without_a_kernel_do_not_ask(planted):
    calls = planted("layer")
    Stack(FeedForward(3), Dropout(3, 0.1))(torch.randn(2, 5, 3))
    GRU(3, 4, reset="before")(torch.randn(2, 5, 3))
    assert not calls


def test_a_memory_is_checked_before_a_form_is_asked(planted):
    calls = planted("layer", ones)
    with pytest.raises(ValueError, match="memory"):
        LSTM(3, 4)(torch.randn(2, 5, 3), LSTM(3, 4).initial_memory(3))
    assert not calls


def test_a_stack_asks_for_neighbours_from_the_first_with_a_kernel_on(planted):
    stack, x = Stack(FeedForward(3), LSTM(3, 4), LSTM(4, 4), Linear(4, 2)), torch.randn(2, 5, 3)

    def two(layers, x, memories, valid):
        if not isinstance(layers[0], LSTM):
            return None
        y, memory = ones(layers[0], x, None, None)
        return y, [memory, memory]

    calls = planted("neighbours", two)
    y, memory = stack(x)
    assert [len(call[1]) for call in calls] == [3, 1]
    assert calls[0][3] == [None] * 3
    assert torch.equal(y, stack[3].map(torch.ones(2, 5, 4)))
    assert [type(own) for own in memory.layers] == [Nothing, HiddenCell, HiddenCell, Nothing]
    stack(x, memory)
    assert isinstance(calls[2][3][0], HiddenCell)
    assert isinstance(memory, Layers)


def test_both_directions_are_asked_for_together(planted):
    layer, x = Bidirectional(LSTM(3, 4), LSTM(3, 4)), torch.randn(2, 5, 3)
    calls = planted("both_directions", lambda a, b, x, *_: [ones(a, x, None, None), ones(b, x, None, None)])
    y, memory = layer(x)
    assert torch.equal(y, torch.ones(2, 5, 8))
    assert isinstance(memory, Both)
    assert calls[0][4] == (None, None)
    assert Bidirectional(LSTM(3, 4), GRU(3, 4)).kernel is None


def test_an_unknown_hook_is_refused():
    with pytest.raises(ValueError, match="hook: got 'layers', expected one of layer,"):
        dispatch.register("layers", "cpu", ones)


def test_without_device_code_nothing_is_asked_and_the_reason_is_known(monkeypatch):
    for name, empty in (("_forms", {}), ("_tried", set()), ("_missing", {})):
        monkeypatch.setattr(dispatch, name, empty)
    monkeypatch.setitem(sys.modules, "recollect.accel.cpu", None)
    assert LSTM(3, 4)(torch.randn(2, 5, 3))[0].shape == (2, 5, 4)
    assert dispatch.why_not("cpu") == ["recollect.accel.cpu is not installed"]
