"""On a GPU the fused kernels of TTT-Linear equal the layer in float64: outputs, memory and gradients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from recollect import TTTLinear
from recollect.core.dispatch import without_accel
from recollect.layers.ttt.fast_weights import FastWeights

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")

FULL = torch.full((3,), 80)
RAGGED = torch.tensor([80, 33, 0])
PLAIN = {"norm": False, "residual": False, "learned_start": False, "rate": 0.01}
SWITCHES = {"gate": True, "post_norm": True, "learned_share": True, "rotary": True}


def distance(found: torch.Tensor, wanted: torch.Tensor) -> float:
    wanted = wanted.double()
    return ((found.double() - wanted).norm() / (wanted.norm() + 1e-12)).item()


def readings(layer: TTTLinear, x: torch.Tensor, lengths: torch.Tensor, cut: int) -> Iterator[torch.Tensor]:
    """Yield outputs, memory and gradients of reading `cut` steps with all rows, then the rest, ragged."""
    x = x.clone().requires_grad_()
    y1, memory = layer(x[:, :cut])
    valid = torch.arange(x.shape[1] - cut, device=x.device) < (lengths.to(x.device) - cut)[:, None]
    y2, memory = layer(x[:, cut:], memory, valid=valid)
    assert isinstance(memory, FastWeights)
    parts = [y1, y2, memory.weights[0], memory.gathered[0]]
    generator = torch.Generator().manual_seed(1)
    loss = sum((part * torch.randn(part.shape, generator=generator).to(part)).sum() for part in parts)
    yield from parts
    yield from torch.autograd.grad(loss, [x, *layer.parameters()])


@pytest.mark.parametrize("width", [32, 64])
@pytest.mark.parametrize("lengths", [FULL, RAGGED])
@pytest.mark.parametrize(
    ("options", "cut"),
    [({}, 16), ({}, 21), ({"mini_batch": 12}, 17), ({"mini_batch": 64}, 20), (PLAIN, 19), (SWITCHES, 18)],
)
def test_the_kernels_equal_the_layer(width: int, lengths: torch.Tensor, options: dict, cut: int) -> None:
    torch.manual_seed(0)
    layer = TTTLinear(2 * width, 2, **options).cuda().bfloat16()
    x = torch.randn(3, 80, 2 * width, device="cuda").bfloat16()
    ours = list(readings(layer, x, lengths.clamp(min=cut), cut))
    with without_accel():
        wanted = list(readings(layer.double(), x.double(), lengths.clamp(min=cut), cut))
    for found, exact in zip(ours, wanted, strict=True):
        assert distance(found, exact) < 2e-2 or exact.norm() < 1e-6
