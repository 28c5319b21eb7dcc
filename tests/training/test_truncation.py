"""Truncation: where the graph is cut; the reweighted form's gradients are right in the mean, regular ones are not."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from layers_under_test import LAYERS, build, inputs_for
from recollect.core.memory import Memory
from recollect.layers.attention.linear_attention import LinearAttention
from recollect.layers.recurrent.gru import GRU
from recollect.layers.recurrent.lstm import LSTM
from recollect.layers.recurrent.rnn import RNN
from recollect.training.truncation import Truncation, scale_gradient

CARRYING = {
    "RNN": lambda: RNN(3, 4),
    "GRU": lambda: GRU(3, 4),
    "LSTM": lambda: LSTM(3, 4),
    "LinearAttention": lambda: LinearAttention(4, 2),
}
EVERY, PIECES = 2, 4  # possible cuts lie two symbols apart; three of them inside eight symbols
CUT = Truncation("reweighted", steps=5, every=EVERY)


def gradient(layer: Any, x: Tensor, lengths: list[int], truncation: Truncation) -> Tensor:
    """The gradient of a sequence's loss, read in stretches of these lengths, memory carried and cut between them."""
    memory, losses = None, []
    for piece in x.split(lengths, dim=1):
        y, memory = truncation.read(layer, piece, memory)
        memory = memory.detach()
        losses.append((y.cumsum(-1).sin() ** 2).sum())
    return torch.cat([g.flatten() for g in torch.autograd.grad(sum(losses), list(layer.parameters()))])


def expected_gradient(layer: Any, x: Tensor, truncation: Truncation) -> Tensor:
    """The mean over all patterns of cuts, each weighted with its probability."""
    c, total = truncation.cut_probability, torch.zeros(())
    for cuts in product([False, True], repeat=PIECES - 1):
        lengths = [EVERY]
        for is_cut in cuts:
            lengths = [*lengths, EVERY] if is_cut else [*lengths[:-1], lengths[-1] + EVERY]
        total = total + c ** sum(cuts) * (1 - c) ** (PIECES - 1 - sum(cuts)) * gradient(layer, x, lengths, truncation)
    return total


@pytest.fixture(params=CARRYING)
def reader(request):
    layer = build(CARRYING[request.param])
    return layer, inputs_for(layer, 3, EVERY * PIECES)


def test_the_reweighted_gradient_is_the_full_one_in_the_mean(reader):
    layer, x = reader
    full = gradient(layer, x, [EVERY * PIECES], Truncation("full"))
    torch.testing.assert_close(expected_gradient(layer, x, CUT), full, rtol=1e-10, atol=1e-12)


def test_a_forgotten_factor_is_seen(reader):
    layer, x = reader
    full = gradient(layer, x, [EVERY * PIECES], Truncation("full"))
    forgetful = expected_gradient(layer, x, Truncation("random", steps=5, every=EVERY))
    assert (forgetful - full).norm() / full.norm() > 1e-3


def test_regular_truncation_is_biased_and_full_is_not(reader):
    layer, x = reader
    full = gradient(layer, x, [EVERY * PIECES], Truncation("full"))
    regular = gradient(layer, x, [4, 4], Truncation("regular", steps=4))
    assert (regular - full).norm() / full.norm() > 1e-3
    assert torch.equal(gradient(layer, x, [EVERY * PIECES], Truncation("regular", steps=EVERY * PIECES)), full)


def test_reading_in_pieces_changes_no_value(reader):
    layer, x = reader
    valid = torch.arange(x.shape[1]) < torch.tensor([[8], [5], [0]])
    y, memory = CUT.read(layer, x, layer.initial_memory(3), valid)
    whole, after = layer(x, valid=valid)
    torch.testing.assert_close(y, whole, rtol=1e-12, atol=1e-12)
    assert memory.equals(after, tol=1e-12)
    assert CUT.read(layer, x[:, :0])[0].shape == (3, 0, layer.width_out)


@pytest.mark.parametrize(("name", "factory"), LAYERS, ids=[name for name, _ in LAYERS])
def test_any_memory_keeps_its_values_and_scales_its_gradient(name, factory):
    layer = build(factory)
    memory = track(layer(inputs_for(layer, 2, 6))[1].detach())
    scaled = scale_gradient(memory, 3.0)
    assert type(scaled) is type(memory)
    assert scaled._identity() == memory._identity()
    ours, theirs = memory.tensors(), scaled.tensors()
    assert ours.keys() == theirs.keys()
    for key, t in ours.items():
        assert torch.equal(t, theirs[key])
        if t.is_floating_point() and t.numel():
            (flow,) = torch.autograd.grad((2.0 * theirs[key]).sum(), t)
            assert torch.equal(flow, torch.full_like(t, 6.0))
        elif not t.is_floating_point():
            assert theirs[key] is t


def track(memory: Memory) -> Memory:
    """The same memory, with gradients wanted for every tensor that can have one."""
    return memory._map(lambda t: t.requires_grad_() if t.is_floating_point() else t, track)


def test_what_flows_to_the_outputs_is_not_scaled():
    layer = build(CARRYING["RNN"])
    x = inputs_for(layer, 2, 4)
    y, memory = layer(x)
    scale_gradient(memory, 5.0)
    plain = torch.autograd.grad(layer(x)[0].sum(), layer.weight_ih)[0]
    assert torch.equal(torch.autograd.grad(y.sum(), layer.weight_ih)[0], plain)


@pytest.mark.parametrize("kind", ["random", "reweighted"])
def test_lengths_are_whole_pieces_with_the_right_mean(kind):
    draw = np.random.default_rng(0)
    lengths = np.array([Truncation(kind, steps=40, every=8).length(draw) for _ in range(20_000)])
    assert not (lengths % 8).any()
    assert lengths.min() == 8
    assert abs(lengths.mean() - 40) < 4 * lengths.std() / np.sqrt(len(lengths))
    assert abs((lengths == 8).mean() - 0.2) < 0.012  # a cut at the first possible one: c = 8 / 40


def test_regular_and_full_lengths_draw_nothing():
    draw = np.random.default_rng(0)
    before = draw.bit_generator.state
    assert Truncation("regular", steps=7).length(draw) == 7
    assert Truncation("full").length(draw) > 10**12
    assert draw.bit_generator.state == before


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"kind": "sometimes"}, "got 'sometimes', expected one of regular, full, random, reweighted"),
        ({"steps": 0}, "got steps 0, every 16, expected at least 1"),
        ({"kind": "reweighted", "steps": 8, "every": 8}, "got steps 8, expected more than 8"),
        ({"kind": "random", "steps": 8}, "got steps 8, expected more than 16"),
    ],
)
def test_what_cannot_be_is_refused(settings, error):
    with pytest.raises(ValueError, match=error):
        Truncation(**settings)
