"""On a GPU a step without inner values equals the readable one, with its gradients."""

from __future__ import annotations

import pytest
import torch

from recollect.layers.recurrent.gru import GRU
from recollect.layers.recurrent.lstm import LSTM
from recollect.layers.recurrent.rnn import RNN

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@pytest.mark.parametrize("kind", [RNN, GRU, LSTM])
@pytest.mark.parametrize("bias", [True, False])
def test_a_fused_step_equals_the_readable_one(kind: type, bias: bool) -> None:
    torch.manual_seed(0)
    layer = kind(5, 7, bias=bias).double().cuda()
    from_x = torch.randn(3, layer.gates * 7, dtype=torch.float64, device="cuda", requires_grad=True)
    memory = layer.initial_memory(3, like=from_x)
    memory = type(memory)(**{name: torch.randn_like(t) for name, t in memory.tensors().items()})
    found = []
    for renewed in (layer.renew(from_x, memory), layer.step(from_x, memory)[0]):
        values = list(renewed.tensors().values())
        loss = sum((v * v).sum() for v in values)
        found.append([*values, *torch.autograd.grad(loss, [from_x, layer.weight_hh])])
    for ours, want in zip(*found, strict=True):
        torch.testing.assert_close(ours, want)


@pytest.mark.parametrize("kind", [GRU, LSTM])
def test_under_autocast_the_state_stays_wide(kind: type) -> None:
    torch.manual_seed(0)
    layer = kind(5, 8).cuda()
    memory, from_x = layer.initial_memory(2), torch.randn(2, layer.gates * 8, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        renewed = layer.renew(from_x.bfloat16(), memory)
    assert all(t.dtype == torch.float32 for t in renewed.tensors().values())
    torch.testing.assert_close(renewed.hidden, layer.step(from_x, memory)[0].hidden, atol=2e-2, rtol=0)
