"""The inputs of a time loop, laid out in one launch, on an emulated chip: the bits of packed_weights.py."""

from __future__ import annotations

import ctypes
import os

import pytest
import torch
from emulated import COMPILER, Emulator

from recollect.accel.cell_inputs import CellInputs
from recollect.accel.cuda.recurrent import plan as plans
from recollect.accel.cuda.recurrent.inputs import prepare_backward, prepare_forward
from recollect.accel.cuda.recurrent.launches import sizes
from recollect.accel.cuda.recurrent.packed_weights import (
    INPUT_SLOTS,
    SENT_GATES,
    join_biases,
    pack_backward,
    pack_forward,
    round_to_tf32,
    to_slots,
)
from recollect.accel.cuda.recurrent.plan import CELLS, Chip, offer
from recollect.accel.cuda.recurrent.workspace import Extent

pytestmark = [
    pytest.mark.skipif(COMPILER is None and os.environ.get("CI") != "true", reason="no g++"),
    pytest.mark.usefixtures("poisoned"),
]

BATCH, STEPS = 9, 3
SHAPES = [
    (5, 30),
    (16, 72),
    (7, 513),
    (104, 30),
]  # width, hidden; 513: through the cache; 104: in tf32 partly in shared memory
NOTHING = CellInputs(*[None] * 7)
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "tf32": torch.float32}


@pytest.fixture(scope="module")
def machine(folder):
    return Emulator(folder, Chip(4))


def draw(cell, width, hidden, dtype, *, bias=True):
    torch.manual_seed(hidden)
    rows = len(SENT_GATES[cell]) * hidden
    shapes = {"x": (BATCH, STEPS, width), "h": (BATCH, hidden), "c": (BATCH, hidden), "w_ih": (rows, width)}
    shapes |= {"w_hh": (rows, hidden), "b_ih": (rows,), "b_hh": (rows,)}
    given = CellInputs(**{name: torch.randn(shape).to(dtype) for name, shape in shapes.items()})
    given = given if cell == "lstm" else given._replace(c=None)
    return given if bias else given._replace(b_ih=None, b_hh=None)


def plan_for(direction, cell, dtype, hidden):
    kind = {"half": dtype == torch.float16, "tf32": dtype == torch.float32}
    return next(offer(direction, cell, batch=BATCH, hidden=hidden, chip=Chip(), **kind))


def factors(t, dtype):
    """Return a tensor as matmuls read it."""
    return round_to_tf32(t.float()) if dtype == torch.float32 else t.to(dtype)


def lying_at(address, shape, dtype):
    """Return a copy of the tensor at an address."""
    t = torch.empty(shape, dtype=dtype)
    ctypes.memmove(t.data_ptr(), address, t.nbytes)
    return t


def check_forward(machine, cell, given, dtype, *, keeps=False):
    batch, steps, width = given.x.shape
    hidden = given.w_hh.shape[1]
    plan = plan_for("forward", cell, dtype, hidden)
    extent = Extent(cell, steps, batch, width, hidden, dtype)
    room, kept = prepare_forward(machine, plan, given, extent, keeps=keeps)
    assert (room is kept) == (not keeps)
    by_time = kept.matrix("by_time", steps * batch, width).view(steps, batch, width)
    x, w_ih = (factors(t, dtype) for t in (given.x, given.w_ih))
    assert torch.equal(by_time, x.transpose(0, 1))
    slotted = to_slots(w_ih, INPUT_SLOTS[cell]).flatten(0, 1)
    assert torch.equal(kept.matrix("slotted", *slotted.shape), slotted)
    assert torch.equal(kept.crossed("slotted", *slotted.shape), slotted.t())
    check_packed(room, pack_forward(factors(given.w_hh, dtype), plan), plan)
    assert ("bias" not in room.addresses) == (given.b_ih is None)
    check_states(room, cell, given, batch, hidden)
    if given.b_ih is not None:
        bias = join_biases(cell, given.b_ih, given.b_hh)
        assert torch.equal(room.floats("bias", *bias.shape), bias)


def check_states(room, cell, given, batch, hidden):
    """Check the states; those that were not given are zero."""
    assert ("first_c" not in room.addresses) == (cell != "lstm")
    states = {"first_h": given.h, "first_c": given.c} if cell == "lstm" else {"first_h": given.h}
    for name, state in states.items():
        wanted = torch.zeros(batch, hidden) if state is None else state.float()
        assert torch.equal(room.floats(name, batch, hidden), wanted)


def check_packed(room, packed, plan):
    assert torch.equal(lying_at(room.addresses["packed"], packed.shape, packed.dtype), packed)
    count = sizes(plan).space * -(-BATCH // plan.batch)
    assert room.addresses["packed"] - room.addresses["zeros"] >= count
    assert not lying_at(room.addresses["zeros"], count, torch.uint8).any()


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


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_what_is_kept_has_a_room_of_its_own(machine, cell):
    check_forward(machine, cell, draw(cell, 5, 30, torch.bfloat16), torch.bfloat16, keeps=True)


@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("cell", CELLS)
def test_states_that_nobody_gave(machine, cell, given):
    check_forward(machine, cell, draw(cell, 5, 30, given)._replace(h=None, c=None), torch.bfloat16)


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


def check_backward(machine, cell, weight, plan, dtype):
    extent = Extent(cell, STEPS, BATCH, 1, weight.shape[1], dtype)
    room = prepare_backward(machine, plan, weight, extent, NOTHING)
    check_packed(room, pack_backward(factors(weight, dtype), plan), plan)


@pytest.mark.parametrize("hidden", [30, 72, 513])
@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("cell", CELLS)
def test_backward(machine, cell, given, hidden):
    dtype = torch.float16 if given == torch.float16 else torch.bfloat16
    weight = draw(cell, 1, hidden, given).w_hh
    plan = plan_for("backward", cell, dtype, hidden)
    check_backward(machine, cell, weight, plan, dtype)


@pytest.mark.parametrize("hidden", [30, 72, 513])
@pytest.mark.parametrize("cell", CELLS)
def test_backward_in_tf32(machine, cell, hidden):
    weight, plan = draw(cell, 1, hidden, torch.float32).w_hh, plan_for("backward", cell, torch.float32, hidden)
    check_backward(machine, cell, weight, plan, torch.float32)


@pytest.mark.parametrize("cell", CELLS)
def test_weights_that_are_laid_down(machine, monkeypatch, cell):
    monkeypatch.setattr(plans, "FEWER_REGISTERS", 40)
    given = draw(cell, 7, 513, torch.float32)
    assert plan_for("forward", cell, torch.float32, 513).laid > 0
    check_forward(machine, cell, given, torch.float32)
    plan = plan_for("backward", cell, torch.float32, 513)
    assert plan.laid > 0
    check_backward(machine, cell, given.w_hh, plan, torch.float32)


def test_a_fault_is_seen(tmp_path):
    machine = Emulator(tmp_path, Chip(4))
    machine.fault = ("slot == 3 ? 2 : slot", "slot == 3 ? 1 : slot")
    with pytest.raises(AssertionError):
        check_forward(machine, "gru", draw("gru", 5, 30, torch.bfloat16), torch.bfloat16)
