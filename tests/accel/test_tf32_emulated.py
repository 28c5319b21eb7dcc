"""float32 by tf32 on an emulated chip: a tenth of bf16's errors, gradients too, and only where torch allows it."""

from __future__ import annotations

import os
from copy import deepcopy

import pytest
import readings
import torch
from emulated import COMPILER
from test_persistent_emulated import KINDS, draw, read, worst
from torch.utils.flop_counter import FlopCounterMode

from recollect import LSTM
from recollect.accel.cuda.recurrent import persistent, plan as plans, precision
from recollect.accel.cuda.recurrent.packed_weights import round_to_tf32
from recollect.core.record import readable
from tiers import slow_after

pytestmark = [
    pytest.mark.skipif(COMPILER is None and os.environ.get("CI") != "true", reason="no g++"),
    pytest.mark.usefixtures("poisoned"),
]

ALLOWED = 2**-10  # of the largest value: two roundings to tf32; bf16 rounds by 2^-9 at every step


def errors(kind, width, hidden, batch, steps, *, ragged=True, dtype=torch.float32):
    """Return the errors of our kernels against float64, from numbers that the dtype represents."""
    torch.manual_seed(hidden * batch + steps)
    layer = KINDS[kind](width, hidden).to(dtype)
    x, parts, valid, weighs = draw(layer, batch, steps, dtype, ragged=ragged)
    found = read(*_in(dtype, layer, x, parts), valid, weighs)
    with readable():
        exact = read(*_in(torch.float64, layer, x, parts), valid, weighs)
    return worst(found, exact)


def _in(dtype, layer, x, parts):
    return deepcopy(layer).to(dtype), x.to(dtype), {name: part.to(dtype) for name, part in parts.items()}


def check(*case, **how):
    found = errors(*case, **how)
    assert max(found.values()) <= ALLOWED, found
    assert max(found.values()) > 1e-6  # it was tf32, and no plain float32


@pytest.mark.parametrize("kind", slow_after(1, ["lstm", "gru"]))
def test_inside_clusters(emulate, kind):
    machine = emulate(12, tf32=True)
    check(kind, 5, 72, 20, 5)
    assert [(p.direction, p.tf32, p.through_l2, p.groups, p.cluster) for p in machine.launched] == [
        ("forward", True, False, 3, 3),
        ("backward", True, False, 3, 3),
    ]


@pytest.mark.parametrize("kind", slow_after(1, ["lstm", "gru"]))
def test_through_the_cache(emulate, kind):
    machine = emulate(20, through_l2=True, tf32=True)
    check(kind, 5, 72, 20, 5)
    assert {(p.direction, p.through_l2) for p in machine.launched} == {("forward", True), ("backward", True)}


def test_in_chunks_and_slices_of_the_batch(emulate, monkeypatch):
    monkeypatch.setattr(plans, "ROWS", (8,))
    monkeypatch.setattr(plans, "CHUNK_BYTES", 512)
    machine = emulate(16, through_l2=True, tf32=True)
    check("lstm", 3, 128, 20, 3, ragged=False)
    assert max(p.chunks for p in machine.launched) > 1
    assert [p.direction for p in machine.launched] == ["forward"] * 2 + ["backward"] * 2


@pytest.mark.parametrize("rows", [16, 24, 32, 64])
def test_many_rows(emulate, monkeypatch, rows):
    monkeypatch.setattr(plans, "ROWS", (rows, 64))
    machine = emulate(8, through_l2=rows == 64, tf32=True)
    check("gru", 4, 40, rows, 3)
    assert {p.rows for p in machine.launched} == {rows}


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("rows", slow_after(1, [8, 16, 32]))
def test_weights_that_registers_have_no_room_for(emulate, monkeypatch, kind, rows):
    monkeypatch.setattr(plans, "FEWER_REGISTERS", 8 + rows // 2)
    monkeypatch.setattr(plans, "ROWS", (rows,))
    machine = emulate(20, through_l2=True, tf32=True)
    check(kind, 5, 72, rows, 4)
    assert all(0 < p.laid < p.depth for p in machine.launched)


def test_chunks_are_summed(emulate, in_chunks):
    machine = emulate(12, tf32=True)
    in_chunks(3)
    check("lstm", 5, 40, 4, 8)
    assert [p.direction for p in machine.launched].count("backward") > 1


@pytest.mark.parametrize(("depth", "bidirectional"), [(3, False), (1, True)])
@pytest.mark.parametrize("ragged", [False, True])
def test_loops_that_share_the_chip(emulate, in_chunks, depth, bidirectional, ragged):
    machine = emulate(12, tf32=True)
    in_chunks(4)
    torch.manual_seed(depth)
    layer = LSTM.stack(5, 40, depth, bidirectional=bidirectional)
    given = readings.draw(layer, 3, 12, ragged=ragged)
    x, memory, valid, weighs = given[0].float(), given[1].to(torch.float32), *given[2:]
    found = readings.read(deepcopy(layer), x, memory, valid, weighs)
    with readable():
        exact = readings.read(deepcopy(layer).double(), x.double(), memory.to(torch.float64), valid, weighs)
    assert {p.tf32 for p in machine.launched} == {True}
    assert len(machine.launched) >= 4
    errors = worst(found, exact)
    assert max(errors.values()) <= ALLOWED, errors


@pytest.mark.slow
def test_bfloat16_would_not_do(emulate):
    emulate(12, tf32=True)
    assert max(errors("lstm", 5, 72, 20, 5, dtype=torch.bfloat16).values()) > ALLOWED


FAULTS = {
    "a state that is not rounded": ("= factor(mine[i].hidden);", "= narrow(mine[i].hidden);"),
    "gradients that are not rounded": (
        "= factor(either(runs, sent[s], 0.0f));",
        "= narrow(either(runs, sent[s], 0.0f));",
    ),
    "weights that are laid elsewhere": ("warpgroup * LAID * 128;", "(1 - warpgroup) * LAID * 128;"),
    "tiles of k in another order": ("at % FOLD * 8 + k, to)", "(1 - at % FOLD) * 8 + k, to)"),
}


@pytest.mark.parametrize("fault", slow_after(2, FAULTS))
def test_the_emulator_sees(emulate, monkeypatch, fault):
    monkeypatch.setattr(plans, "FEWER_REGISTERS", 12)
    machine = emulate(20, through_l2=True, tf32=True)
    machine.fault = FAULTS[fault]
    with pytest.raises(AssertionError):
        check("lstm", 5, 72, 8, 4)


def test_memory_goes_on_in_float32(emulate):
    machine = emulate(12, tf32=True)
    layer, x = LSTM(5, 30), torch.randn(3, 6, 5)
    with torch.no_grad():
        whole, end = layer(x)
        first, memory = layer(x[:, :2])
        second, after = layer(x[:, 2:], memory)
    assert whole.dtype == memory.cell.dtype == torch.float32
    assert torch.equal(torch.cat([first, second], 1), whole)  # the state itself is never rounded
    assert after.equals(end, 0.0)
    assert len(machine.launched) == 3


def test_only_where_torch_allows_it(emulate, monkeypatch):
    machine = emulate(12, tf32=True)
    layer, x = LSTM(5, 30), torch.randn(3, 4, 5)
    assert persistent.takes("lstm", x, 30)
    assert not persistent.takes("lstm", x.double(), 30)
    assert not persistent.takes("lstm", x, 4096)
    monkeypatch.setattr(precision, "FEWEST_ROWS", 4)
    assert not persistent.takes("lstm", x, 31)  # torch.nn is in full precision there
    assert persistent.takes("lstm", torch.randn(4, 4, 5), 31)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    assert not persistent.takes("lstm", torch.randn(4, 4, 5), 31)
    layer(x)
    assert not machine.launched


def test_what_others_follow_is_read_plainly(emulate):
    machine = emulate(12, tf32=True)
    layer, x = LSTM(5, 30), torch.randn(3, 4, 5)
    named = dict(layer.named_parameters())
    found = torch.func.grad(lambda p: torch.func.functional_call(layer, p, (x,))[0].sum())(named)
    with FlopCounterMode(display=False):
        layer(x)
    assert not machine.launched
    layer(x)[0].sum().backward()
    assert len(machine.launched) == 2
    for name, p in named.items():
        assert torch.allclose(p.grad, found[name], atol=0.02), name


def test_a_cpu_is_not_asked_why(monkeypatch):
    monkeypatch.setattr(persistent, "REASONS", {})
    assert not persistent.takes("lstm", torch.randn(3, 40, 5), 30)
    assert persistent.REASONS == {}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_what_products_are_allowed_is_given_back(dtype):
    matmul, (asked, wanted) = torch.backends.cuda.matmul, precision.WANTED[dtype]
    before = {name: getattr(matmul, name) for name, _ in precision.WANTED.values()}
    assert before[asked] != wanted
    with precision.of_products(dtype):
        assert {name: getattr(matmul, name) for name in before} == before | {asked: wanted}
        with precision.of_products(dtype):
            assert getattr(matmul, asked) == wanted
        assert getattr(matmul, asked) == wanted
    with pytest.raises(ValueError, match="no product"), precision.of_products(dtype):
        raise ValueError("no product")
    assert {name: getattr(matmul, name) for name in before} == before


@pytest.mark.parametrize("is_allowed", [True, False])
def test_float32_is_read_in_tf32_where_cudnn_is_allowed_to(monkeypatch, is_allowed):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", is_allowed)
    rows = (1, 15, 16, 64)
    taken = {cell: [few for few in rows if precision.may_use_tf32(cell, few, 128, 128)] for cell in plans.CELLS}
    cells = ("lstm", "gru") if is_allowed else ()
    assert taken == {cell: [16, 64] if cell in cells else [] for cell in plans.CELLS}


@pytest.mark.parametrize(
    ("inputs", "hidden", "is_taken"), [(48, 200, False), (99, 511, False), (100, 200, True), (48, 512, True)]
)
def test_few_inputs_to_few_units_are_left_to_torch(monkeypatch, inputs, hidden, is_taken):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    assert precision.may_use_tf32("lstm", 64, inputs, hidden) == is_taken


@pytest.mark.parametrize("way", ["forward", "backward"])
def test_what_products_are_allowed_is_restored_after_each_way(emulate, way):
    emulate(12, tf32=True)
    matmul, (asked, wanted) = torch.backends.cuda.matmul, precision.WANTED[torch.float32]
    before = getattr(matmul, asked)
    y, _ = LSTM(5, 30)(torch.randn(3, 4, 5))
    if way == "backward":
        y.sum().backward()
    assert getattr(matmul, asked) == before != wanted


def test_rounding():
    one, unit = torch.tensor([1.0, -1.0]), 2.0**-10
    assert torch.equal(round_to_tf32(one * (1 + 0.5 * unit)), one * (1 + unit))  # half goes away from zero
    assert torch.equal(round_to_tf32(one * (1 + 0.499 * unit)), one)
    assert torch.equal(round_to_tf32(one * (1 + unit)), one * (1 + unit))
