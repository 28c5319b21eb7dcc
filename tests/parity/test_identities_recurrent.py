"""What the equations say at their limits: gates open or shut, no recurrence, the gradient through time written out."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from recollect.core.record import readable
from recollect.layers.recurrent.gru import GRU
from recollect.layers.recurrent.lstm import LSTM
from recollect.layers.recurrent.recurrence import Hidden, HiddenCell
from recollect.layers.recurrent.rnn import RNN

WIDTH, HIDDEN, BATCH, STEPS = 3, 4, 2, 12
OPEN, SHUT = 1e4, -1e4  # σ is exactly 1 and exactly 0

both_resets = pytest.mark.parametrize("reset", ["before", "after"])


def drawn(*shape, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def gru_with_gates(reset, *, r=None, z=None):
    """Build a GRU whose reset and update gate are pinned by their biases."""
    torch.manual_seed(0)
    layer = GRU(WIDTH, HIDDEN, reset=reset, dtype=torch.float64)
    with torch.no_grad():
        for i, pin in enumerate([r, z]):
            if pin is not None:
                layer.bias_ih[i * HIDDEN : (i + 1) * HIDDEN] = pin
    return layer


def candidate_rnn(gru):
    """Build the RNN with the weights of a GRU's candidate."""
    rnn = RNN(WIDTH, HIDDEN, dtype=torch.float64)
    rnn.load_state_dict({name: p[2 * HIDDEN :] for name, p in gru.state_dict().items()})
    return rnn


def assert_close(a, b, atol=1e-12):
    torch.testing.assert_close(a, b, rtol=0, atol=atol)


@both_resets
def test_update_gate_open_keeps_the_state(reset):
    layer, h = gru_with_gates(reset, z=OPEN), drawn(BATCH, HIDDEN, seed=2)
    x, start = drawn(BATCH, STEPS, WIDTH), Hidden(hidden=h)
    with readable():
        y, memory = layer(x, start)
    assert torch.equal(y, h[:, None].expand_as(y))
    assert torch.equal(memory.hidden, h)
    assert_close(layer(x, start)[0], y)  # the kernel computes h̃ + z (h - h̃), which rounds


@both_resets
def test_update_shut_and_reset_open_is_the_vanilla_rnn(reset):
    layer = gru_with_gates(reset, r=OPEN, z=SHUT)
    x, start = drawn(BATCH, STEPS, WIDTH), Hidden(hidden=drawn(BATCH, HIDDEN, seed=2))
    assert_close(layer(x, start)[0], candidate_rnn(layer)(x, start)[0])


@both_resets
def test_both_gates_shut_is_a_network_of_this_step_alone(reset):
    """With reset="after" the recurrent bias is shut out too; with "before" it stays."""
    layer = gru_with_gates(reset, r=SHUT, z=SHUT)
    x, start = drawn(BATCH, STEPS, WIDTH), Hidden(hidden=drawn(BATCH, HIDDEN, seed=2))
    rnn = candidate_rnn(layer)
    bias = rnn.bias_ih + rnn.bias_hh if reset == "before" else rnn.bias_ih
    assert_close(layer(x, start)[0], torch.tanh(x @ rnn.weight_ih.T + bias))


def test_lstm_that_forgets_nothing_and_writes_nothing_keeps_its_cell():
    torch.manual_seed(0)
    layer = LSTM(WIDTH, HIDDEN, dtype=torch.float64)
    with torch.no_grad():
        layer.bias_ih[:HIDDEN], layer.bias_ih[HIDDEN : 2 * HIDDEN] = SHUT, OPEN
    cell = drawn(BATCH, HIDDEN, seed=2)
    _, memory = layer(drawn(BATCH, STEPS, WIDTH), HiddenCell(hidden=torch.zeros_like(cell), cell=cell))
    assert torch.equal(memory.cell, cell)


def test_lstm_with_an_open_forget_gate_carries_the_error_undiminished():
    """The constant error carousel: without recurrent weights ∂c_T/∂c_0 is the identity."""
    torch.manual_seed(0)
    layer = LSTM(WIDTH, HIDDEN, dtype=torch.float64)
    with torch.no_grad():
        layer.weight_hh.zero_()
        layer.bias_ih[HIDDEN : 2 * HIDDEN] = OPEN
    cell = drawn(BATCH, HIDDEN, seed=2).requires_grad_()
    _, memory = layer(drawn(BATCH, STEPS, WIDTH), HiddenCell(hidden=torch.zeros_like(cell), cell=cell))
    weights = drawn(BATCH, HIDDEN, seed=3)
    (slope,) = torch.autograd.grad((memory.cell * weights).sum(), cell)
    assert torch.equal(slope, weights)


@pytest.mark.parametrize(("nonlinearity", "phi"), [("tanh", torch.tanh), ("relu", torch.relu)])
def test_rnn_without_recurrence_is_a_network_of_each_step(nonlinearity, phi):
    torch.manual_seed(0)
    layer = RNN(WIDTH, HIDDEN, nonlinearity=nonlinearity, dtype=torch.float64)
    perceptron = nn.Linear(WIDTH, HIDDEN, dtype=torch.float64)
    with torch.no_grad():
        layer.weight_hh.zero_()
        perceptron.weight.copy_(layer.weight_ih)
        perceptron.bias.copy_(layer.bias_ih + layer.bias_hh)
    x, start = drawn(BATCH, STEPS, WIDTH), Hidden(hidden=drawn(BATCH, HIDDEN, seed=2))
    assert_close(layer(x, start)[0], phi(perceptron(x)))


# ---- the gradient through time ---------------------------------------------------------------------------


def direct_slope(h, h_before):
    """∂f/∂W at one step, h_{t-1} held fixed: (1 - h_a²) δ_ab h_{t-1,c}, as (H, H, H)."""
    return torch.einsum("a,ab,c->abc", 1 - h**2, torch.eye(HIDDEN, dtype=torch.float64), h_before)


def written_out(layer, states, t):
    """∂h_t/∂W_hh = ∂f_t/∂W + Σ_{i<t} (Π_{j=i+1..t} ∂f_j/∂h_{j-1}) ∂f_i/∂W; states are h_0 … h_T."""
    total = direct_slope(states[t], states[t - 1])
    for i in range(1, t):
        product = torch.eye(HIDDEN, dtype=torch.float64)
        for j in range(i + 1, t + 1):
            product = (1 - states[j] ** 2)[:, None] * layer.weight_hh @ product
        total = total + torch.einsum("ab,bcd->acd", product, direct_slope(states[i], states[i - 1]))
    return total


@pytest.mark.parametrize("t", [1, 2, 5, STEPS])
def test_gradient_through_time_is_the_written_out_sum(t):
    torch.manual_seed(0)
    layer = RNN(WIDTH, HIDDEN, dtype=torch.float64)
    h = drawn(1, HIDDEN, seed=2)
    y, _ = layer(drawn(1, STEPS, WIDTH), Hidden(hidden=h))
    states = torch.cat([h[None], y], dim=1)[0]  # h_0 … h_T
    slopes = [torch.autograd.grad(h_a, layer.weight_hh, retain_graph=True)[0] for h_a in states[t]]
    assert_close(written_out(layer, states, t), torch.stack(slopes), atol=1e-10)


# ---- sizes and biases ------------------------------------------------------------------------------------


def test_parameters_stand_as_one_to_three_to_four():
    sizes = [sum(p.numel() for p in kind(128, 128).parameters()) for kind in (RNN, GRU, LSTM)]
    assert sizes == [33_024, 99_072, 132_096]
    assert sizes == [sizes[0] * gates for gates in (1, 3, 4)]


def merged(layer, rows):
    """Give a copy whose recurrent bias is moved into the input's, at the rows given."""
    twin = type(layer)(
        WIDTH, HIDDEN, dtype=torch.float64, **({"reset": layer.reset} if hasattr(layer, "reset") else {})
    )
    twin.load_state_dict(layer.state_dict())
    with torch.no_grad():
        twin.bias_ih[rows] += twin.bias_hh[rows]
        twin.bias_hh[rows] = 0
    return twin


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU before"])
def test_two_biases_are_one(kind):
    torch.manual_seed(0)
    build = {"RNN": RNN, "LSTM": LSTM, "GRU before": GRU}[kind]
    layer = build(WIDTH, HIDDEN, dtype=torch.float64, **({"reset": "before"} if "GRU" in kind else {}))
    x = drawn(BATCH, STEPS, WIDTH)
    assert_close(merged(layer, slice(None))(x)[0], layer(x)[0])


def test_the_candidates_two_biases_are_two_with_reset_after():
    """The reset gate scales the recurrent one: only the gates' own biases may be merged."""
    torch.manual_seed(0)
    layer, x = GRU(WIDTH, HIDDEN, dtype=torch.float64), drawn(BATCH, STEPS, WIDTH)
    assert_close(merged(layer, slice(0, 2 * HIDDEN))(x)[0], layer(x)[0])
    assert (merged(layer, slice(2 * HIDDEN, None))(x)[0] - layer(x)[0]).abs().max() > 1e-2
