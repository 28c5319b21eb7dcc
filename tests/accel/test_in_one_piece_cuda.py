"""Weights on a GPU are contiguous in one buffer, so that cuDNN need not copy them, and are parameters as before."""

from __future__ import annotations

import warnings
from copy import deepcopy

import pytest
import torch
from torch import nn

from recollect import GRU, LSTM, RNN
from recollect.core.dispatch import without_accel

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")

KINDS = {"lstm": LSTM, "gru": GRU, "rnn": RNN}


def are_together(layer):
    return len({p.untyped_storage().data_ptr() for p in layer.parameters()}) == 1


def read(layer, x):
    """Read by cuDNN, whose warning about non-contiguous weights is an error here."""
    with warnings.catch_warnings(), without_accel():
        warnings.simplefilter("error")
        return layer(x)[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_built_there_moved_there_and_copied(kind, bias, dtype):
    apart = KINDS[kind](5, 30, bias=bias)
    values = deepcopy(apart).to(dtype).state_dict()
    moved = apart.to("cuda", dtype)
    for layer in (moved, deepcopy(moved), KINDS[kind](5, 30, bias=bias, device="cuda", dtype=dtype)):
        assert are_together(layer)
        x = torch.randn(3, 7, 5, device="cuda", dtype=dtype)
        assert read(layer, x).shape == (3, 7, 30)
    assert all(torch.equal(value.cpu(), values[name]) for name, value in moved.state_dict().items())


def test_it_is_read_and_trained_as_before():
    torch.manual_seed(0)
    layer, x = LSTM(5, 30).double(), torch.randn(3, 7, 5).double()
    twin = deepcopy(layer).to("cuda")
    for one in (layer, twin):
        optimiser = torch.optim.SGD(one.parameters(), lr=0.01)
        for _ in range(3):
            optimiser.zero_grad()
            read(one, x.to(one.weight_ih.device)).square().sum().backward()
            optimiser.step()
    assert are_together(twin)
    for name, value in twin.state_dict().items():
        assert torch.allclose(value.cpu(), layer.state_dict()[name], atol=1e-10), name


def test_what_lies_together_stays_where_it_is():
    layer = GRU(5, 30, device="cuda")
    before = [p.data_ptr() for p in layer.parameters()]
    layer.to("cuda").float()
    assert [p.data_ptr() for p in layer.parameters()] == before


def test_weights_that_two_share_are_left_alone():
    layer = RNN(30, 30, device="cuda")
    layer.weight_ih = layer.weight_hh
    layer.to(torch.float64)
    assert layer.weight_ih is layer.weight_hh
    assert not are_together(layer)


def test_weights_that_are_made_of_others_are_left_alone():
    layer = nn.utils.parametrizations.weight_norm(LSTM(5, 30), "weight_hh").to("cuda")
    assert layer(torch.randn(3, 7, 5, device="cuda"))[0].isfinite().all()
