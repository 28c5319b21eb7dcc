"""Plans: every unit and row is covered, and none needs more than the chip has."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from recollect.accel.cuda.recurrent.packed_weights import (
    HIDDEN_SLOTS,
    INPUT_SLOTS,
    from_slots,
    pack_backward,
    pack_forward,
    to_slots,
)
from recollect.accel.cuda.recurrent.plan import CELLS, REGISTERS, SENT, Chip, offer

HIDDEN, BATCH = (1, 30, 64, 128, 200, 256, 512, 513, 650, 1024, 1500, 1536), (1, 3, 16, 64, 128, 1000)
H200 = Chip()


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("cell", CELLS)
def test_every_size_has_a_plan_that_holds_it(direction, cell):
    for hidden in HIDDEN:
        for batch in BATCH:
            found = list(offer(direction, cell, False, batch, hidden, H200))
            assert found, (hidden, batch)
            for plan in found:
                assert plan.blocks * plan.units >= hidden
                assert plan.blocks % plan.cluster == 0
                assert plan.cluster <= 16
                assert plan.shared_bytes <= H200.shared_bytes
                assert plan.registers <= REGISTERS
                if plan.through_l2:
                    assert plan.grid <= H200.multiprocessors
                    shares = 1 if direction == "forward" else plan.cluster
                    assert shares * plan.deep * plan.chunks * plan.per_chunk >= plan.blocks
                else:
                    assert plan.batch >= batch


def test_the_first_plan_reads_the_whole_batch_where_one_can():
    first = next(offer("forward", "lstm", False, 64, 1024, H200))
    assert (first.rows, first.groups, first.blocks, first.through_l2) == (32, 2, 64, True)
    first = next(offer("backward", "lstm", False, 64, 1024, H200))
    assert (first.rows, first.groups, first.cluster, first.depth) == (32, 2, 4, 32)
    first = next(offer("forward", "lstm", False, 64, 512, H200))
    assert (first.rows, first.groups, first.cluster, first.through_l2) == (8, 8, 16, False)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_between_16_and_32_rows_a_cluster_reads_24(direction):
    inside = [p for p in offer(direction, "lstm", False, 64, 512, H200) if not p.through_l2]
    assert [(p.rows, p.groups) for p in inside][:4] == [(8, 8), (16, 4), (24, 3), (32, 2)]
    assert all(p.rows != 24 for p in offer(direction, "lstm", False, 64, 650, H200))  # slower through the cache


def test_tf32_takes_twice_the_registers_and_what_is_left_goes_through_the_cache():
    inside = next(offer("forward", "lstm", False, 64, 256, H200, tf32=True))
    assert (inside.rows, inside.cluster, inside.depth, inside.through_l2) == (8, 8, 32, False)
    assert inside.depth == 2 * next(offer("forward", "lstm", False, 64, 256, H200)).depth
    first = next(offer("forward", "lstm", False, 64, 512, H200, tf32=True))
    assert (first.rows, first.groups, first.blocks, first.through_l2) == (16, 4, 32, True)
    assert first.share_bytes == 512 * 16 * 4


@pytest.mark.parametrize(("direction", "laid"), [("forward", 20), ("backward", 16)])
def test_what_registers_have_no_room_for_lies_in_shared_memory(direction, laid):
    plan = next(offer(direction, "lstm", False, 64, 1024, H200, tf32=True))
    assert (plan.rows, plan.groups, plan.blocks, plan.depth, plan.laid) == (32, 2, 64, 64, laid)
    assert next(offer(direction, "lstm", False, 16, 1024, H200, tf32=True)).batch == 16
    assert not list(offer(direction, "lstm", False, 1000, 1024, H200, tf32=True))  # so many launches are not faster


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("cell", CELLS)
def test_tf32_plans_hold_every_unit(direction, cell):
    for hidden in (size for size in HIDDEN if size <= 650):
        for batch in BATCH:
            found = list(offer(direction, cell, False, batch, hidden, H200, tf32=True))
            assert found, (hidden, batch)
            for plan in found:
                assert plan.dtype is torch.float32
                assert plan.blocks * plan.units >= hidden
                assert plan.shared_bytes <= H200.shared_bytes
                assert plan.registers <= REGISTERS
                if plan.through_l2:
                    shares = 1 if direction == "forward" else plan.cluster
                    assert shares * plan.deep * plan.chunks * plan.per_chunk >= plan.blocks
                elif direction == "forward":
                    assert plan.wide * 2 * plan.rows * 32 <= 16 * plan.threads  # a slice is sent at once


def test_what_is_too_large_has_no_plan():
    assert not list(offer("backward", "lstm", False, 8, 1600, H200))
    assert not list(offer("forward", "lstm", False, 8, 4096, H200))


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("hidden", [40, 520])
@pytest.mark.parametrize("tf32", [False, True])
def test_packing_keeps_every_weight_once(cell, hidden, tf32):
    gates = len([slot for slot in HIDDEN_SLOTS[cell] if slot is not None])
    weight = torch.arange(1.0, gates * hidden * hidden + 1, dtype=torch.float64).view(gates * hidden, hidden)
    for direction, pack in (("forward", pack_forward), ("backward", pack_backward)):
        plan = next(offer(direction, cell, False, 8, hidden, H200, tf32=tf32))
        packed = pack(weight, plan)
        assert packed.numel() == plan.blocks * plan.wide * plan.deep * plan.weight_tiles * 128 * 8 // plan.fold
        kept = packed[packed != 0].sort().values
        assert torch.equal(kept, weight.flatten())


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("slots", [HIDDEN_SLOTS, INPUT_SLOTS])
def test_slots_come_back(cell, slots):
    gates = {"lstm": 4, "gru": 3}.get(cell, 1)
    weight = torch.randn(gates * 6, 5)
    assert torch.equal(from_slots(to_slots(weight, slots[cell]), slots[cell]), weight)


def test_what_is_sent_matches_the_gates_that_have_weights():
    assert {cell: len([s for s in slots if s is not None]) for cell, slots in HIDDEN_SLOTS.items()} == SENT


def test_a_plan_names_its_kernel():
    plan = next(offer("forward", "gru", True, 8, 64, H200))
    assert plan.macros["CELL"] == 1
    assert plan.macros["HALF"] == 1
    assert plan.macros != replace(plan, rows=16).macros


def test_what_a_kernel_is_compiled_with_does_not_depend_on_the_process():
    """A hash of strings differs in every process: among the macros it would leave no compiled kernel reusable."""
    plan = next(offer("forward", "lstm", False, 64, 256, H200))
    before = plan.macros
    hash(plan)
    assert plan.macros == before
    assert "_HASH" not in plan.macros
