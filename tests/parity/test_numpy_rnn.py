"""The from-scratch numpy network against autograd, and against the published backward pass."""

import numpy as np
import pytest
import torch

from recollect.layers.recurrent.numpy_rnn import NumpyRNN
from recollect.layers.recurrent.rnn import RNN

INPUTS, HIDDEN, OUTPUTS, STEPS = 5, 7, 3, 9


class PublishedRNN(NumpyRNN):
    """Bug: the backward pass as published, d_h = W_hh @ …, without the transpose."""

    def one_step_back(self, d_total):
        return self.W_hh @ d_total


def large_weights(network, scale=0.5):
    """Put weights large enough for the past to matter; randn / 1000 would hide most of the gradient."""
    rng = np.random.default_rng(1)
    for name in ("W_xh", "W_hh", "W_hy", "b_h", "b_y"):
        getattr(network, name)[...] = scale * rng.standard_normal(getattr(network, name).shape)
    return network


def one_hot_columns(steps=STEPS):
    ids = np.random.default_rng(2).integers(INPUTS, size=steps)
    return [np.eye(INPUTS)[:, [i]] for i in ids]


def d_of(y):
    """The gradient of Σ cos(k) y_k: fixed and uneven."""
    return np.cos(np.arange(y.size, dtype=np.float64)).reshape(y.shape)


def backward_of(network, inputs):
    y, _ = network.forward(inputs)
    return network.backward(d_of(y))


def autograd_of(network, inputs):
    """The same gradients, from RNN and a linear read-out under autograd."""
    rnn = RNN(INPUTS, HIDDEN, dtype=torch.float64)
    readout = torch.nn.Linear(HIDDEN, OUTPUTS, dtype=torch.float64)
    with torch.no_grad():
        rnn.weight_ih.copy_(torch.from_numpy(network.W_xh))
        rnn.weight_hh.copy_(torch.from_numpy(network.W_hh))
        rnn.bias_ih.copy_(torch.from_numpy(network.b_h[:, 0]))
        rnn.bias_hh.zero_()
        readout.weight.copy_(torch.from_numpy(network.W_hy))
        readout.bias.copy_(torch.from_numpy(network.b_y[:, 0]))
    x = torch.from_numpy(np.stack([column[:, 0] for column in inputs]))[None]  # (1, T, D)
    h = rnn(x)[1].hidden
    y = readout(h)
    (y * torch.from_numpy(d_of(y.detach().numpy()))).sum().backward()
    gradients = {"W_xh": rnn.weight_ih, "W_hh": rnn.weight_hh, "W_hy": readout.weight}
    gradients |= {"b_h": rnn.bias_ih, "b_y": readout.bias}
    return y, h, {name: p.grad.numpy().reshape(getattr(network, name).shape) for name, p in gradients.items()}


def test_forward_equals_rnn_and_linear():
    network = large_weights(NumpyRNN(INPUTS, OUTPUTS, HIDDEN))
    y, h = network.forward(one_hot_columns())
    y_torch, h_torch, _ = autograd_of(network, one_hot_columns())
    assert y.shape == (OUTPUTS, 1)
    assert h.shape == (HIDDEN, 1)
    np.testing.assert_allclose(y[:, 0], y_torch.detach().numpy()[0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(h[:, 0], h_torch.detach().numpy()[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("steps", [1, 2, STEPS])
def test_backward_equals_autograd(steps):
    network, inputs = large_weights(NumpyRNN(INPUTS, OUTPUTS, HIDDEN)), one_hot_columns(steps)
    ours, theirs = backward_of(network, inputs), autograd_of(network, inputs)[2]
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=0, atol=1e-10, err_msg=name)


def test_published_backward_is_right_for_the_last_step_only():
    network = large_weights(PublishedRNN(INPUTS, OUTPUTS, HIDDEN))
    one, many = one_hot_columns(1), one_hot_columns()
    np.testing.assert_allclose(backward_of(network, one)["W_hh"], autograd_of(network, one)[2]["W_hh"], atol=1e-10)
    published, right = backward_of(network, many), autograd_of(network, many)[2]
    for name in ("W_xh", "W_hh", "b_h"):
        assert np.abs(published[name] - right[name]).max() > 1e-2, name


def test_published_weights_hide_the_missing_transpose():
    """With randn / 1000 both passes differ, but by about a hundredth of the gradient."""
    inputs = one_hot_columns()
    right, published = (
        backward_of(NumpyRNN(INPUTS, OUTPUTS), inputs),
        backward_of(PublishedRNN(INPUTS, OUTPUTS), inputs),
    )
    difference = np.abs(right["W_xh"] - published["W_xh"]).max()
    assert 0 < difference < 0.02 * np.abs(right["W_xh"]).max()


def test_initialisation_is_the_published_one():
    network = NumpyRNN(20, 2, rng=np.random.default_rng(3))
    assert network.W_hh.shape == (64, 64)
    assert network.W_xh.shape == (64, 20)
    assert network.W_hy.shape == (2, 64)
    assert 0.0009 < network.W_hh.std() < 0.0011
    assert not network.b_h.any()
    assert not network.b_y.any()


def test_the_generator_decides_the_weights():
    same, again, other = (NumpyRNN(3, 2, rng=np.random.default_rng(seed)) for seed in (4, 4, 5))
    assert np.array_equal(same.W_hh, again.W_hh)
    assert not np.array_equal(same.W_hh, other.W_hh)


def test_forward_keeps_what_backward_needs():
    network, inputs = NumpyRNN(INPUTS, OUTPUTS), one_hot_columns()
    _, h = network.forward(inputs)
    assert len(network.last_inputs) == STEPS
    assert len(network.last_hs) == STEPS + 1
    assert not network.last_hs[0].any()
    assert np.array_equal(network.last_hs[-1], h)


def test_empty_sequence_answers_with_the_bias():
    network = large_weights(NumpyRNN(INPUTS, OUTPUTS, HIDDEN))
    y, h = network.forward([])
    assert np.array_equal(y, network.b_y)
    assert not h.any()
    gradients = network.backward(np.ones_like(y))
    assert not gradients["W_hh"].any()
    assert gradients["b_y"].all()


def test_backward_before_forward_says_what_to_do():
    with pytest.raises(RuntimeError, match="call forward first"):
        NumpyRNN(3, 2).backward(np.ones((2, 1)))


def test_step_clips_every_entry():
    network = NumpyRNN(3, 2, 4)
    before = network.b_h.copy()
    network.step({"b_h": np.array([[5.0], [-5.0], [0.5], [0.0]])}, learn_rate=0.1)
    np.testing.assert_allclose(before - network.b_h, [[0.1], [-0.1], [0.05], [0.0]], atol=1e-15)
    network.step({"b_h": np.full((4, 1), 5.0)}, learn_rate=0.1, clip=2.0)
    np.testing.assert_allclose(network.b_h, before - [[0.3], [0.1], [0.25], [0.2]], atol=1e-15)


def test_it_learns_whether_a_symbol_occurred():
    """Softmax and cross-entropy by hand, as the published example does: is symbol 0 among six?"""
    rng = np.random.default_rng(6)
    network = NumpyRNN(4, 2, rng=rng)
    sequences = rng.integers(4, size=(30, 6))
    losses = []
    for _ in range(150):
        loss = 0.0
        for ids in sequences:
            target = int((ids == 0).any())
            y, _ = network.forward([np.eye(4)[:, [i]] for i in ids])
            p = np.exp(y - y.max()) / np.exp(y - y.max()).sum()
            loss -= float(np.log(p[target, 0]))
            network.step(network.backward(p - np.eye(2)[:, [target]]), learn_rate=0.02)
        losses.append(loss / len(sequences))
    assert losses[-1] < 0.2 * losses[0]
