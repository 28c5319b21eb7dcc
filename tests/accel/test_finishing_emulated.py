"""What follows the backward loop, on an emulated chip: the gradients of `from_slots`, in the parameters' dtype."""

from __future__ import annotations

import os

import pytest
import torch
from emulated import COMPILER, Emulator

from recollect.accel.cell_inputs import CellInputs
from recollect.accel.cuda.recurrent.packed_weights import HIDDEN_SLOTS, INPUT_SLOTS, from_slots
from recollect.accel.cuda.recurrent.plan import CELLS, Chip, offer
from recollect.accel.cuda.recurrent.weight_gradients import WeightProducts, weight_gradients
from tiers import slow_after

pytestmark = [
    pytest.mark.skipif(COMPILER is None and os.environ.get("CI") != "true", reason="no g++"),
    pytest.mark.usefixtures("poisoned"),
]

NOTHING = CellInputs(*[None] * 7)
NAMES = ("w_ih", "w_hh", "b_ih", "b_hh")


@pytest.fixture(scope="module")
def machine(folder):
    return Emulator(folder, Chip(4))


def compare(machine, cell, width, hidden, pairs, dtype, wanted, chunks=1):
    torch.manual_seed(hidden)
    slots = len(INPUT_SLOTS[cell])
    flat, x, before = (torch.randn(11, n).to(dtype) for n in (hidden * slots, width, hidden))
    d_bias = torch.randn(pairs, hidden, slots)
    kind = {"half": dtype == torch.float16, "tf32": dtype == torch.float32}
    plan = next(offer("backward", cell, batch=2 * pairs, hidden=hidden, chip=Chip(), **kind))
    dtypes = NOTHING._replace(**wanted)
    total = dtype if chunks == 1 else torch.float32
    parts = zip((dtypes.w_ih, dtypes.w_hh), (width, hidden), strict=True)
    products = WeightProducts(*(torch.empty(hidden * slots, n, dtype=total) if wants else None for wants, n in parts))
    for rows in torch.arange(11).tensor_split(chunks):
        products.add(flat[rows], x[rows], before[rows])
    found = weight_gradients(machine, plan, products, d_bias.flatten(1), (width, hidden), dtypes)
    multiply = (lambda a, b: a.t() @ b) if chunks == 1 else (lambda a, b: a.double().t() @ b.double())
    exact = {
        "w_ih": from_slots(multiply(flat, x).view(hidden, slots, -1), INPUT_SLOTS[cell]),
        "w_hh": from_slots(multiply(flat, before).view(hidden, slots, -1), HIDDEN_SLOTS[cell]),
        "b_ih": from_slots(d_bias.sum(0), INPUT_SLOTS[cell]),
        "b_hh": from_slots(d_bias.sum(0), HIDDEN_SLOTS[cell]),
    }
    for name, gradient in zip(NAMES, found, strict=True):
        if name not in wanted:
            assert gradient is None
            continue
        assert gradient.dtype == wanted[name]
        if name.startswith("w") and chunks == 1:
            assert torch.equal(gradient, exact[name].to(gradient.dtype))
        else:  # summed in another order
            torch.testing.assert_close(gradient, exact[name].to(gradient.dtype))


@pytest.mark.parametrize("dtype", slow_after(1, [torch.bfloat16, torch.float16, torch.float32]))
@pytest.mark.parametrize("cell", CELLS)
def test_all(machine, cell, dtype):
    for width, hidden, pairs in ((5, 30, 1), (16, 72, 21)):
        compare(machine, cell, width, hidden, pairs, dtype, dict.fromkeys(NAMES, dtype))


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_float32_parameters(machine, cell):
    compare(machine, cell, 16, 30, 3, torch.bfloat16, dict.fromkeys(NAMES, torch.float32))


@pytest.mark.parametrize("wanted", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_chunks_are_summed_in_float32(machine, cell, wanted):
    compare(machine, cell, 16, 30, 3, torch.bfloat16, dict.fromkeys(NAMES, wanted), chunks=3)


def test_chunks_in_tf32(machine):
    compare(machine, "gru", 16, 30, 3, torch.float32, dict.fromkeys(NAMES, torch.float32), chunks=3)


@pytest.mark.parametrize("name", NAMES)
def test_only_what_is_wanted(machine, name):
    compare(machine, "gru", 5, 30, 3, torch.bfloat16, {name: torch.bfloat16})
