"""Walks that share an emulated chip: in pieces, beside each other, in waves, in any order that their waits allow."""

from __future__ import annotations

import os
import random
from collections import deque
from copy import deepcopy

import pytest
import torch
from emulated import COMPILER
from readings import NARROW, draw, read

from recollect import GRU, LSTM, RNN
from recollect.accel.cuda.recurrent import (
    chunks as pieces,
    plan as plans,
    streams as lanes,
    wavefront as side_by_side,
)
from recollect.accel.cuda.recurrent.streams import Schedule, StreamTask, perform
from recollect.core.dispatch import without_accel
from recollect.core.record import is_watched, readable
from tiers import slow_after

needs_emulator = [
    pytest.mark.skipif(COMPILER is None and os.environ.get("CI") != "true", reason="no g++"),
    pytest.mark.usefixtures("poisoned"),
]
KINDS = {"lstm": LSTM, "gru": GRU, "rnn_tanh": RNN}


class Shuffled:
    """Lanes whose work is done at the end, in a drawn order: any that their waits allow."""

    heeds = True  # whether waits count

    def __init__(self, seed):
        self.draw, self.queues, self.done, self.lanes_used = random.Random(seed), {}, set(), set()

    def begin(self, lanes):
        self.queues = {lane: deque() for lane in lanes}

    def do(self, lane, work):
        self.lanes_used.add(lane)
        self.queues[lane].append(("do", work))

    def mark(self, lane):
        mark = object()
        self.queues[lane].append(("mark", mark))
        return mark

    def wait(self, lane, mark):
        if self.heeds:
            self.queues[lane].append(("wait", mark))

    def end(self, lanes):
        assert set(lanes) == set(self.queues)
        while ready := [lane for lane, queue in self.queues.items() if queue and self._is_ready(queue[0])]:
            kind, what = self.queues[self.draw.choice(ready)].popleft()
            if kind == "do":
                what()
            elif kind == "mark":
                self.done.add(what)
        assert not any(self.queues.values()), "everybody waits for another"

    def _is_ready(self, entry):
        return entry[0] != "wait" or entry[1] in self.done


@pytest.fixture
def shuffled(monkeypatch):
    """Let tasks run in a drawn order; gives all lanes that were used."""
    used = []

    def draw(device, urgency):
        used.append(Shuffled(len(used)))
        return used[-1]

    monkeypatch.setattr(lanes, "lanes_for", draw)
    return used


def worst(found, exact):
    return {name: ((found[name] - exact[name]).abs().max() / exact[name].abs().max()).item() for name in exact}


def compare(layer, batch, steps, *, ragged=True):
    """Whatever runs beside what, errors against float64 are those of the readable form in the same dtype."""
    layer = layer.to(NARROW)
    given = x, memory, valid, weighs = draw(layer, batch, steps, ragged=ragged)
    found = read(deepcopy(layer), *given)
    with readable():
        plain = read(deepcopy(layer), *given)
        exact = read(deepcopy(layer).double(), x.double(), memory.to(torch.float64), valid, weighs)
    errors, allowed = worst(found, exact), worst(plain, exact)
    for name, error in errors.items():
        assert error <= max(1.5 * allowed[name], torch.finfo(NARROW).eps), (name, error, allowed[name])


def counts(machine):
    return [sum(p.direction == direction for p in machine.launched) for direction in ("forward", "backward")]


class TestPieces:
    pytestmark = needs_emulator

    @pytest.mark.parametrize("ragged", [True, False])
    @pytest.mark.parametrize("kind", KINDS)
    def test_products_beside_the_walks(self, emulate, in_pieces, shuffled, kind, ragged):
        machine = emulate(12)
        in_pieces(2)
        torch.manual_seed(1)
        compare(KINDS[kind](5, 30), 3, 7, ragged=ragged)
        assert counts(machine) == [4, 4]  # the last piece is a step long
        assert [s.lanes_used for s in shuffled] == [{0, 1, 3}, {0, 1, 3}]

    def test_pieces_through_the_cache(self, emulate, in_pieces, shuffled):
        machine = emulate(24, through_l2=True)
        in_pieces(2)
        torch.manual_seed(2)
        compare(LSTM(5, 72), 9, 5)
        assert counts(machine) == [3, 3]
        assert all(p.through_l2 for p in machine.launched)

    @pytest.mark.parametrize("kind", KINDS)
    def test_pieces_that_grow(self, emulate, in_pieces, shuffled, kind):
        machine = emulate(12)
        in_pieces(2, growth=2.0)
        torch.manual_seed(14)
        compare(KINDS[kind](5, 30), 3, 15)
        assert counts(machine) == [3, 8]  # of 2, 4 and 9 steps; backwards all of 2

    def test_several_launches_for_a_piece(self, emulate, in_pieces, shuffled, monkeypatch):
        monkeypatch.setattr(plans, "ROWS", (8,))
        machine = emulate(14, through_l2=True)
        in_pieces(2)
        torch.manual_seed(3)
        compare(LSTM(3, 72), 20, 5)
        assert counts(machine)[1] == 9

    @pytest.mark.parametrize("rows", slow_after(1, [32, 64]))
    def test_plans_with_many_rows(self, emulate, in_pieces, shuffled, monkeypatch, rows):
        monkeypatch.setattr(plans, "ROWS", (rows,))
        machine = emulate(12)
        in_pieces(3)
        torch.manual_seed(13)
        compare(LSTM.stack(5, 30, 1, bidirectional=True), 40, 7)
        assert {(p.rows, p.through_l2) for p in machine.launched} == {(rows, False)}

    def test_the_same_bits_in_pieces(self, emulate, in_pieces):
        emulate(12)
        torch.manual_seed(4)
        layer = LSTM(5, 30).to(NARROW)
        given = draw(layer, 3, 9, ragged=True)
        whole = read(deepcopy(layer), *given)
        in_pieces(2)
        pieces = read(deepcopy(layer), *given)
        for name in ("y", "dx", "last hidden", "last cell", "d hidden", "d cell"):
            assert torch.equal(whole[name], pieces[name]), name

    def test_small_products_are_not_worth_a_launch(self, emulate, in_pieces, monkeypatch):
        machine = emulate(12)
        in_pieces(2)
        seven = 2 * 3 * 7 * 30 * 4  # operations for each column of what is multiplied
        monkeypatch.setattr(pieces, "WORTH", {"forward": seven * 5 // 2, "backward": seven * 40 // 2})
        layer = LSTM(5, 30).to(NARROW)
        for steps, launches in ((7, 2), (6, 1)):
            layer(torch.randn(3, steps, 5).to(NARROW))[0].sum().backward()
            assert counts(machine) == [launches, launches]
            machine.launched.clear()

    def test_a_full_chip_is_not_shared(self, emulate, in_pieces):
        machine = emulate(2)
        in_pieces(2)
        torch.manual_seed(11)
        compare(LSTM(5, 30), 3, 7)
        assert counts(machine) == [1, 1]


class TestBeside:
    pytestmark = needs_emulator

    @pytest.mark.parametrize("ragged", [True, False])
    @pytest.mark.parametrize("kind", slow_after(1, KINDS))
    def test_two_directions(self, emulate, in_pieces, shuffled, kind, ragged):
        machine = emulate(18)
        in_pieces(3)
        torch.manual_seed(5)
        compare(KINDS[kind].stack(5, 30, 1, bidirectional=True), 40, 7, ragged=ragged)
        assert counts(machine) == [6, 6]
        assert [s.lanes_used for s in shuffled] == [{0, 1, 2, 4}, {0, 1, 2, 4}]
        assert {(p.rows, p.groups) for p in machine.launched} == {(16, 3)}  # 5 groups of 8 rows fit only once

    def test_in_turn_where_only_one_fits(self, emulate, in_pieces):
        machine = emulate(3)
        in_pieces(100)
        torch.manual_seed(6)
        compare(LSTM.stack(5, 30, 1, bidirectional=True), 5, 4)
        assert {p.grid for p in machine.launched} == {2}
        assert counts(machine) == [2, 2]

    def test_without_gradients(self, emulate, in_pieces, shuffled):
        machine = emulate(12)
        in_pieces(3)
        layer = LSTM.stack(5, 30, 1, bidirectional=True).to(NARROW)
        x, memory, valid, _ = draw(layer, 5, 7, ragged=True)
        with torch.no_grad():
            y, after = layer(x, memory, valid=valid)
            with without_accel():
                wanted, end = layer(x, memory, valid=valid)
        assert counts(machine) == [6, 0]
        assert torch.allclose(y.float(), wanted.float(), atol=0.02)
        assert after.equals(end, 0.02)

    def test_who_is_watched_is_called(self, emulate, in_pieces):
        emulate(12)
        in_pieces(3)
        layer, calls = LSTM.stack(5, 30, 1, bidirectional=True).to(NARROW), []
        x = torch.randn(3, 4, 5).to(NARROW)
        layer(x)
        assert not is_watched(layer[0].backwards)
        layer[0].backwards.register_forward_hook(lambda *_: calls.append(1))
        layer(x)
        assert calls == [1]

    def test_what_is_frozen_stays_so(self, emulate, in_pieces):
        emulate(12)
        in_pieces(3)
        layer = LSTM.stack(5, 30, 1, bidirectional=True).to(NARROW)
        layer[0].forwards.requires_grad_(False)
        layer(torch.randn(3, 4, 5).to(NARROW))[0].sum().backward()
        assert all(p.grad is None for p in layer[0].forwards.parameters())
        assert all(p.grad.isfinite().all() for p in layer[0].backwards.parameters())


class TestPile:
    pytestmark = needs_emulator

    @pytest.mark.parametrize("ragged", [True, False])
    @pytest.mark.parametrize("kind", KINDS)
    def test_a_wave(self, emulate, in_pieces, shuffled, kind, ragged):
        machine = emulate(12)
        in_pieces(2)
        torch.manual_seed(7)
        compare(KINDS[kind].stack(5, 30, 4), 6, 5, ragged=ragged)
        assert counts(machine) == [12, 12]
        assert [s.lanes_used for s in shuffled] == [{0, 1, 2, 3, 4}, {0, 1, 2, 3, 4, 5}]

    def test_dropout_and_other_layers_part_piles(self, emulate, in_pieces, shuffled):
        machine = emulate(12)
        in_pieces(2)
        torch.manual_seed(8)
        layer = LSTM.stack(5, 30, 2, dropout=0.5).eval()
        compare(layer, 3, 5, ragged=False)
        assert counts(machine) == [6, 6]  # each by itself
        mixed = type(LSTM.stack(5, 30, 1))(LSTM(5, 30), GRU(30, 30), GRU(30, 30))
        machine.launched.clear()
        compare(mixed, 3, 5, ragged=False)
        assert [p.cell for p in machine.launched if p.direction == "forward"] == ["lstm"] * 3 + ["gru"] * 6

    def test_short_sequences_are_read_in_turn(self, emulate, in_pieces):
        machine = emulate(12)
        in_pieces(4)
        torch.manual_seed(12)
        compare(LSTM.stack(5, 30, 2), 3, 6)
        assert counts(machine) == [2, 2]

    def test_a_memory_of_another_layer_is_refused(self, emulate, in_pieces):
        emulate(12)
        in_pieces(2)
        layer = LSTM.stack(5, 30, 2).to(NARROW)
        _, memory, _, _ = draw(LSTM.stack(5, 24, 2), 3, 5, ragged=False)
        with pytest.raises(ValueError, match="hidden"):
            layer(torch.randn(3, 5, 5).to(NARROW), memory)

    def test_autocast(self, emulate, in_pieces, shuffled):
        machine = emulate(12)
        in_pieces(2)
        torch.manual_seed(9)
        layer, x = LSTM.stack(5, 30, 2), torch.randn(3, 6, 5)
        with torch.autocast("cpu", torch.bfloat16):
            y, memory = layer(x)
        y.float().sum().backward()
        with without_accel():
            wanted, _ = layer(x)
        assert counts(machine) == [6, 6]
        assert memory.layers[1].cell.dtype == layer[0].weight_hh.grad.dtype == torch.float32
        assert torch.allclose(y.float(), wanted, atol=0.02)


@pytest.mark.skipif(COMPILER is None and os.environ.get("CI") != "true", reason="no g++")
@pytest.mark.parametrize("build", [lambda: LSTM(5, 30), lambda: LSTM.stack(5, 30, 3)])
def test_a_missing_wait_is_seen(emulate, in_pieces, shuffled, poisoned, monkeypatch, build):
    emulate(12)
    in_pieces(1)
    monkeypatch.setattr(Shuffled, "heeds", False)
    torch.manual_seed(10)
    with pytest.raises(AssertionError):
        compare(build(), 3, 6)


@pytest.mark.parametrize("tasks", [side_by_side.forward_tasks, side_by_side.backward_tasks])
@pytest.mark.parametrize(("layers", "pieces", "is_pile"), [(1, 5, False), (2, 3, False), (5, 1, False), (4, 6, True)])
@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_no_more_walks_at_once_than_fit(tasks, layers, pieces, is_pile, at_once):
    before, last, walks = {}, {}, []  # all that a task comes after
    for task in tasks(layers, pieces, at_once, is_pile=is_pile).tasks:
        near = [t for t in (last.get(task.lane), *task.after) if t is not None]
        before[task] = set(near).union(*(before[t] for t in near))
        last[task.lane] = task
        walks += [task] if task.what.name == "step" else []
    assert len(walks) == layers * pieces
    assert walks[0].lane == 0
    assert all(early in before[late] for early, late in zip(walks, walks[at_once:], strict=False))


class TestLanes:
    def test_waits_are_for_other_lanes_alone(self, shuffled):
        seen = []
        first = StreamTask(0, "a")
        second = StreamTask(0, "b", (first,))
        third = StreamTask(1, "c", (second,))
        perform(Schedule([first, second, third]), seen.append, torch.device("cpu"), [1, 0])
        assert seen == ["a", "b", "c"]

    def test_in_turn_without_a_gpu(self):
        seen = []
        perform(Schedule([StreamTask(lane, lane) for lane in (1, 0, 2)]), seen.append, torch.device("cpu"), [1, 0, 0])
        assert seen == [1, 0, 2]
