"""On a GPU a step without inner values equals the readable one, with its gradients."""

from __future__ import annotations

import pytest
import torch

from recollect.layers.gru import GRU
from recollect.layers.lstm import LSTM
from recollect.layers.rnn import RNN

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


def test_steps_of_several_dtypes_take_the_readable_way() -> None:
    layer = GRU(5, 7).cuda()
    memory = layer.initial_memory(2)
    with torch.autocast("cuda", torch.bfloat16):
        renewed = layer.renew(torch.randn(2, 21, device="cuda", dtype=torch.bfloat16), memory)
    assert renewed.hidden.isfinite().all()
