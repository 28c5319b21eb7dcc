"""Every layer keeps the nine laws, on the examples of `check_layer` and on drawn ones; and `record` changes nothing."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings, strategies as st

from layers_under_test import HIDDEN, LAYERS, VOCAB, WIDTH, build, inputs_for
from recollect.core.compose import Repeated, Stack
from recollect.core.layer import scan
from recollect.core.record import is_readable, readable, record
from recollect.laws.check import LAWS, Example, check_layer
from recollect.laws.trial import Trial
from recollect.layers.attention.self_attention import SelfAttention
from recollect.layers.pointwise import Embedding, FeedForward, LayerNorm
from recollect.layers.recurrent.gru import GRU
from recollect.layers.recurrent.lstm import LSTM
from recollect.layers.recurrent.rnn import RNN

LONG_TO_CHECK = ("Stack of the line", "TTTLinear mini-batch 1", "TTTLinear rotary", "TTTMLP whole sequence")
ONE_OF_EACH = (
    "RNN tanh",
    "GRU reset after",
    "LSTM",
    "Markov",
    "Window",
    "SelfAttention",
    "LinearAttention",
    "TTTLinear",
)


def layers(slow):
    """Return every layer for `parametrize`, some of them marked slow."""
    return [pytest.param(f, id=name, marks=[pytest.mark.slow] if slow(name) else []) for name, f in LAYERS]


every_layer = pytest.mark.parametrize("factory", layers(lambda name: name in LONG_TO_CHECK))


@every_layer
def test_the_nine_laws(factory):
    check_layer(build(factory))


@pytest.mark.parametrize("factory", layers(lambda name: name not in ONE_OF_EACH))
def test_the_nine_laws_in_float32(factory):
    check_layer(build(factory, torch.float32))


@every_layer
def test_the_laws_without_gradients(factory):
    """Kernels are chosen by whether gradients are wanted; that may not change what is computed."""
    layer = build(factory)
    with torch.no_grad():  # on short inputs: the law reference compares both modes on long ones
        check_layer(layer, inputs_for(layer, 3, 35), laws=["split", "reference"])


@st.composite
def shapes(draw):
    """Draw a past, new steps, their valid lengths, the cuts, and a seed for the values."""
    batch, steps, past = draw(st.integers(0, 3)), draw(st.integers(0, 6)), draw(st.integers(0, 4))
    lengths = tuple(draw(st.lists(st.integers(0, steps), min_size=batch, max_size=batch)))
    cuts = tuple(sorted(draw(st.sets(st.integers(1, steps - 1))))) if steps > 1 else ()
    return past, steps, lengths, cuts, draw(st.integers(0, 99))


@every_layer
def test_the_laws_on_drawn_examples(factory):
    layer = build(factory)

    @settings(max_examples=10)
    @given(shapes())
    def laws_hold(shape):
        past, steps, lengths, cuts, seed = shape
        x = inputs_for(layer, len(lengths), past + steps, seed)
        example = Example(past=x[:, :past], x=x[:, past:], lengths=lengths, cuts=cuts)
        for name, law in LAWS.items():
            law(layer, Trial(name, example, tol=1e-9))

    laws_hold()


def test_scan_is_reading_step_by_step():
    layer = build(lambda: LSTM(WIDTH, HIDDEN))
    x = inputs_for(layer, 2, 5)
    y, memory = layer(x)
    y_scan, memory_scan = scan(layer, x)
    torch.testing.assert_close(y_scan, y, rtol=0, atol=1e-12)
    assert memory_scan.equals(memory, 1e-12)


# ---- record --------------------------------------------------------------------------------------------

GATES = {
    "RNN tanh": ["hidden"],
    "GRU reset after": ["reset_gate", "update_gate", "candidate", "hidden"],
    "GRU reset before": ["reset_gate", "update_gate", "candidate", "hidden"],
    "LSTM": ["input_gate", "forget_gate", "candidate", "output_gate", "cell", "hidden"],
}


@every_layer
def test_recorded_and_unrecorded_outputs_agree(factory):
    layer = build(factory)
    x, valid = inputs_for(layer, 3, 6), torch.arange(6) < torch.tensor([[6], [0], [4]])
    y, memory = layer(x, valid=valid)
    with record(layer):
        y_recorded, memory_recorded = layer(x, valid=valid)
    torch.testing.assert_close(y_recorded, y, rtol=0, atol=1e-12)
    assert memory_recorded.equals(memory, 1e-12)


@pytest.mark.parametrize("name", GATES)
def test_recurrent_layers_show_their_gates(name):
    layer = build(dict(LAYERS)[name])
    with record(layer) as seen:
        y, _ = layer(inputs_for(layer, 2, 5))
    assert list(seen) == GATES[name]
    assert {value.shape for value in seen.values()} == {(2, 5, HIDDEN)}
    assert torch.equal(seen["hidden"], y)


def test_recorded_gates_are_those_of_the_equations():
    layer = build(lambda: LSTM(WIDTH, HIDDEN))
    with record(layer) as seen:
        y, memory = layer(inputs_for(layer, 2, 5))
    cell_before = torch.cat([torch.zeros(2, 1, HIDDEN, dtype=torch.float64), seen["cell"][:, :-1]], dim=1)
    cell = seen["forget_gate"] * cell_before + seen["input_gate"] * seen["candidate"]
    torch.testing.assert_close(cell, seen["cell"], rtol=0, atol=1e-12)
    torch.testing.assert_close(seen["output_gate"] * cell.tanh(), y, rtol=0, atol=1e-12)
    assert torch.equal(memory.cell, seen["cell"][:, -1])


def a_stack():
    return Stack(Embedding(VOCAB, WIDTH), LSTM(WIDTH, HIDDEN), Stack(LayerNorm(HIDDEN), FeedForward(HIDDEN)))


def test_names_begin_with_the_module_path():
    layer = build(a_stack)
    with record(layer) as seen:
        layer(inputs_for(layer, 2, 5))
    assert list(seen) == [*(f"layers.1.{gate}" for gate in GATES["LSTM"]), "layers.2.layers.1.hidden"]
    assert seen["layers.2.layers.1.hidden"].shape == (2, 5, 4 * HIDDEN)


def test_names_tell_the_two_directions_apart():
    layer = build(lambda: RNN.stack(WIDTH, HIDDEN, 2, bidirectional=True))
    with record(layer) as seen:
        layer(inputs_for(layer, 2, 5))
    assert list(seen) == [f"layers.{i}.{way}.hidden" for i in (0, 1) for way in ("forwards", "backwards")]


def test_only_what_lies_below_the_root_is_recorded():
    layer = build(a_stack)
    with record(layer[1]) as seen:
        layer(inputs_for(layer, 2, 5))
    assert list(seen) == GATES["LSTM"]


def test_calls_are_joined_along_time_and_all_are_kept():
    layer = build(lambda: GRU(WIDTH, HIDDEN))
    x = inputs_for(layer, 2, 5)
    with record(layer) as seen:
        y, memory = layer(x)
        more, _ = layer(x[:, :2], memory)
    assert [value.shape[1] for value in seen.calls["hidden"]] == [5, 2]
    assert torch.equal(seen["hidden"], torch.cat([y, more], dim=1))


@every_layer
def test_values_recorded_step_by_step_are_those_recorded_at_once(factory):
    """All that has a time axis: attention weights over a growing list differ in another axis too."""
    layer = build(factory)
    if not layer.streams or isinstance(layer, Repeated):  # one name for several readings: in reading order
        return
    x = inputs_for(layer, 2, 5)
    with record(layer) as at_once:
        layer(x)
    with record(layer) as by_step:
        scan(layer, x)
    assert sorted(at_once) == sorted(by_step)
    for name, value in at_once.items():
        if not name.endswith(("scores", "weights")):
            torch.testing.assert_close(by_step[name], value, rtol=0, atol=1e-12)


def test_weights_over_a_growing_list_are_the_last_calls():
    layer = build(lambda: SelfAttention(8, 2))
    with record(layer) as seen:
        scan(layer, inputs_for(layer, 2, 5))
    assert seen["weights"].shape == (2, 2, 1, 5)
    assert len(seen.calls["weights"]) == 6


def test_an_unknown_name_is_answered_with_the_known_ones():
    layer = build(lambda: RNN(WIDTH, HIDDEN))
    with record(layer) as seen:
        layer(inputs_for(layer, 1, 2))
    with pytest.raises(KeyError, match=r"'cell' was not recorded; recorded were: hidden"):
        seen["cell"]
    with record(layer) as empty:
        pass
    with pytest.raises(KeyError, match="recorded were: no values"):
        empty["hidden"]


def test_recording_ends_with_its_block_even_by_an_error():
    layer = build(lambda: RNN(WIDTH, HIDDEN))
    x = inputs_for(layer, 1, 5)
    with pytest.raises(RuntimeError, match="stop"), record(layer) as seen:  # noqa: PT012
        layer(x)
        raise RuntimeError("stop")
    layer(x)
    assert len(seen.calls["hidden"]) == 1
    assert not is_readable()


def test_recordings_nest():
    layer = build(lambda: RNN(WIDTH, HIDDEN))
    x = inputs_for(layer, 1, 5)
    with readable(), record(layer) as outer:
        with record(layer) as inner:
            layer(x)
        layer(x)
        assert is_readable()
    assert (len(outer.calls["hidden"]), len(inner.calls["hidden"])) == (1, 1)
    assert not is_readable()
