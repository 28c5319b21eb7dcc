"""What is laid out for a walk in one launch, on an emulated chip: the bits of the readable form in packing.py."""

from __future__ import annotations

import ctypes
import os

import pytest
import torch
from emulated import COMPILER, Emulator

from recollect.kernels import plans
from recollect.kernels.launching import sizes
from recollect.kernels.packing import (
    INPUT_SLOTS,
    SENT_GATES,
    join_biases,
    pack_backward,
    pack_forward,
    round_to_tf32,
    to_slots,
)
from recollect.kernels.plans import CELLS, Chip, offer
from recollect.kernels.preparing import prepare_backward, prepare_forward
from recollect.kernels.recurrences import Given

pytestmark = [
    pytest.mark.skipif(COMPILER is None and os.environ.get("CI") != "true", reason="no g++"),
    pytest.mark.usefixtures("poisoned"),
]

BATCH, STEPS = 9, 3
SHAPES = [(5, 30), (16, 72), (7, 513)]  # width, hidden; the last goes through the cache
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "tf32": torch.float32}


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    return Emulator(tmp_path_factory.mktemp("prepared"), Chip(4))


def draw(cell, width, hidden, dtype, *, bias=True):
    torch.manual_seed(hidden)
    rows = len(SENT_GATES[cell]) * hidden
    shapes = {"x": (BATCH, STEPS, width), "h": (BATCH, hidden), "c": (BATCH, hidden), "w_ih": (rows, width)}
    shapes |= {"w_hh": (rows, hidden), "b_ih": (rows,), "b_hh": (rows,)}
    given = Given(**{name: torch.randn(shape).to(dtype) for name, shape in shapes.items()})
    given = given if cell == "lstm" else given._replace(c=None)
    return given if bias else given._replace(b_ih=None, b_hh=None)


def plan_for(direction, cell, dtype, hidden):
    kind = {"half": dtype == torch.float16, "tf32": dtype == torch.float32}
    return next(offer(direction, cell, batch=BATCH, hidden=hidden, chip=Chip(), **kind))


def factors(t, dtype):
    """What products take of a tensor."""
    return round_to_tf32(t.float()) if dtype == torch.float32 else t.to(dtype)


def lying_at(address, shape, dtype):
    """Copy a tensor from an address."""
    t = torch.empty(shape, dtype=dtype)
    ctypes.memmove(t.data_ptr(), address, t.nbytes)
    return t


def check_forward(machine, cell, given, dtype):
    batch, steps, width = given.x.shape
    hidden = given.h.shape[1]
    plan = plan_for("forward", cell, dtype, hidden)
    ready, by_time, slotted = prepare_forward(machine, plan, given, dtype)
    assert torch.equal(by_time.view(steps, batch, width), factors(given.x.transpose(0, 1), dtype))
    assert torch.equal(slotted, to_slots(factors(given.w_ih, dtype), INPUT_SLOTS[cell]).flatten(0, 1))
    packed = pack_forward(factors(given.w_hh, dtype), plan)
    assert torch.equal(lying_at(ready.weights, packed.shape, dtype), packed)
    check_zeros(ready, plan)
    assert torch.equal(lying_at(ready.hidden, given.h.shape, torch.float32), given.h.float())
    assert (ready.cell is None) == (given.c is None)
    assert (ready.bias is None) == (given.b_ih is None)
    if given.c is not None:
        assert torch.equal(lying_at(ready.cell, given.c.shape, torch.float32), given.c.float())
    if given.b_ih is not None:
        bias = join_biases(cell, given.b_ih, given.b_hh)
        assert torch.equal(lying_at(ready.bias, bias.shape, torch.float32), bias)


def check_zeros(ready, plan):
    assert ready.weights - ready.zeros == sizes(plan).space * -(-BATCH // plan.batch)
    assert not lying_at(ready.zeros, ready.weights - ready.zeros, torch.uint8).any()


@pytest.mark.parametrize(("width", "hidden"), SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cell", CELLS)
def test_forward(machine, cell, dtype, width, hidden):
    check_forward(machine, cell, draw(cell, width, hidden, DTYPES[dtype]), DTYPES[dtype])


@pytest.mark.parametrize("given", [torch.float32, torch.float16])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_autocast_narrows(machine, cell, given):
    for width, hidden in SHAPES[:2]:
        check_forward(machine, cell, draw(cell, width, hidden, given), torch.bfloat16)


def test_without_bias(machine):
    check_forward(machine, "gru", draw("gru", 5, 30, torch.bfloat16, bias=False), torch.bfloat16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_inputs_that_lie_otherwise(machine, dtype):
    given = draw("lstm", 16, 30, dtype)
    room = torch.randn(STEPS, BATCH, 33).to(dtype).transpose(0, 1)
    for x in (room[..., 1:17], room[..., :32:2], room[:, :1, :16].expand(-1, STEPS, -1)):
        check_forward(machine, "lstm", given._replace(x=x), torch.bfloat16)
    crossed = given._replace(h=given.h.t().contiguous().t(), w_hh=given.w_hh.t().contiguous().t())
    check_forward(machine, "lstm", crossed, torch.bfloat16)


@pytest.mark.parametrize("hidden", [30, 72, 513])
@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("cell", CELLS)
def test_backward(machine, cell, given, hidden):
    dtype = torch.float16 if given == torch.float16 else torch.bfloat16
    weight = draw(cell, 1, hidden, given).w_hh
    plan = plan_for("backward", cell, dtype, hidden)
    ready = prepare_backward(machine, plan, weight, BATCH, dtype)
    packed = pack_backward(factors(weight, dtype), plan)
    assert torch.equal(lying_at(ready.weights, packed.shape, dtype), packed)
    check_zeros(ready, plan)


@pytest.mark.parametrize("hidden", [30, 72, 513])
@pytest.mark.parametrize("cell", CELLS)
def test_backward_in_tf32(machine, cell, hidden):
    weight, plan = draw(cell, 1, hidden, torch.float32).w_hh, plan_for("backward", cell, torch.float32, hidden)
    ready = prepare_backward(machine, plan, weight, BATCH, torch.float32)
    packed = pack_backward(factors(weight, torch.float32), plan)
    assert torch.equal(lying_at(ready.weights, packed.shape, torch.float32), packed)
    check_zeros(ready, plan)


@pytest.mark.parametrize("cell", CELLS)
def test_weights_that_are_laid_down(machine, monkeypatch, cell):
    monkeypatch.setattr(plans, "FEWER_REGISTERS", 40)
    given = draw(cell, 7, 513, torch.float32)
    assert plan_for("forward", cell, torch.float32, 513).laid > 0
    check_forward(machine, cell, given, torch.float32)
    plan = plan_for("backward", cell, torch.float32, 513)
    assert plan.laid > 0
    packed = pack_backward(factors(given.w_hh, torch.float32), plan)
    ready = prepare_backward(machine, plan, given.w_hh, BATCH, torch.float32)
    assert torch.equal(lying_at(ready.weights, packed.shape, torch.float32), packed)


def test_a_fault_is_seen(tmp_path):
    machine = Emulator(tmp_path, Chip(4))
    machine.fault = ("slot == 3 ? 2 : slot", "slot == 3 ? 1 : slot")
    with pytest.raises(AssertionError):
        check_forward(machine, "gru", draw("gru", 5, 30, torch.bfloat16), torch.bfloat16)
