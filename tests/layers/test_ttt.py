"""Test-time training: explicit outer gradients, and rows that end within a mini-batch."""

from __future__ import annotations

import pytest
import torch

from recollect import TTTMLP, TTTLinear, scan
from recollect.layers.ttt.dual_linear import Slots, read_slots

MINI_BATCHES, HEADS, STEPS, INPUTS, WIDTH = 3, 2, 4, 5, 3


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("norm", [True, False])
def test_explicit_gradients_equal_finite_differences(norm: bool) -> None:
    torch.manual_seed(0)
    is_open = torch.zeros(MINI_BATCHES, HEADS, 1, 1, dtype=torch.float64)
    is_open[2, 0] = is_open[:, 1] = 1  # the first row ends in its last mini-batch, the second in its first
    slots = Slots(
        k=drawn(MINI_BATCHES, HEADS, STEPS, INPUTS),
        target=drawn(MINI_BATCHES, HEADS, STEPS, WIDTH),
        q=drawn(MINI_BATCHES, HEADS, STEPS, INPUTS),
        rate=drawn(MINI_BATCHES, HEADS, STEPS, 1),
        weight=drawn(HEADS, INPUTS, WIDTH),
        gathered=drawn(HEADS, INPUTS, WIDTH),
        share=drawn(STEPS, 1),
        border=(0.3 * (1 - is_open)).requires_grad_(),
        open=is_open,
        gamma=drawn(HEADS, 1, WIDTH) if norm else None,
        beta=drawn(HEADS, 1, WIDTH) if norm else None,
    )
    given = [t for t in slots if t is not None]
    rest = [] if norm else [None, None]
    assert torch.autograd.gradcheck(lambda *given: read_slots(Slots(*given, *rest)), given, fast_mode=True)


@pytest.mark.parametrize("kind", [TTTLinear, TTTMLP])
def test_a_row_that_ends_within_a_mini_batch_goes_on_there(kind: type[TTTLinear]) -> None:
    torch.manual_seed(0)
    layer = kind(8, 2, mini_batch=4).double()
    x = torch.randn(2, 8, 8, dtype=torch.float64)
    valid = torch.tensor([[True, True, True, False], [True, True, True, True]])
    _, memory = layer(x[:, :4], valid=valid)
    y, _ = layer(x[:, 4:], memory)
    expected, _ = scan(layer, torch.cat([x[:1, :3], x[:1, 4:]], dim=1))
    torch.testing.assert_close(y[:1], expected[:, 3:])
