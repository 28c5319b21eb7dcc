"""Linear maps by oneDNN: the values of torch's own, and only where nothing else looks on."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import recollect as rc
from recollect.accel.cpu.linear_maps import FEWEST, ByOneDNN, _fits, is_faster, linear_maps

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch has no oneDNN here")


@pytest.mark.parametrize("shape", [(64, 33), (3, 21, 33), (FEWEST, 33), (2, 33), (0, 33)])
@pytest.mark.parametrize("has_bias", [True, False])
def test_the_values_are_those_of_torch(shape, has_bias):
    layer = nn.Linear(33, 47, bias=has_bias)
    x = torch.randn(shape)
    with torch.no_grad():
        expected = layer(x)
        with ByOneDNN():
            found = layer(x)
            strided = F.linear(torch.randn(33, 40).t(), layer.weight[:, :33], layer.bias)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert strided.shape == (40, 47)


def test_what_is_not_meant_is_left_to_torch():
    x, w = torch.randn(16, 8), torch.randn(4, 8)
    assert not _fits(x, w)  # gradients
    with torch.no_grad():
        assert _fits(x, w)
        assert not _fits(x[: FEWEST - 1], w)
        assert not _fits(x.double(), w.double())
        assert not _fits(x, w, torch.zeros(4, dtype=torch.float64))
        with torch.autocast("cpu"):
            assert not _fits(x, w)
    with ByOneDNN():
        y = F.linear(x, w.requires_grad_())
    y.sum().backward()
    assert w.grad is not None


@pytest.mark.parametrize("family", ["lstm", "transformer"])
def test_a_model_computes_what_it_computes_without(family):
    model = rc.LanguageModel(rc.LanguageConfig(family, vocab_size=11, width=32, layers=2)).eval()
    ids = torch.randint(11, (12, 9))
    with torch.no_grad():
        expected, _ = model(ids)
        with ByOneDNN():
            y, memory = model(ids[:, :5])
            z, _ = model(ids[:, 5:], memory)
    torch.testing.assert_close(torch.cat([y, z], 1), expected, rtol=1e-4, atol=1e-5)


def test_it_is_offered_where_it_is_faster():
    assert (linear_maps() is None) == (not is_faster())
