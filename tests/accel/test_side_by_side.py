"""Time loops that share an emulated chip: chunks, layers beside each other, waves, any order that the waits allow."""

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
    chunks,
    plan as plans,
    streams,
    wavefront,
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
    """Streams whose work is done at the end, in a drawn order: any that their waits allow."""

    heeds = True  # whether waits count

    def __init__(self, seed):
        self.draw, self.queues, self.done, self.streams_used = random.Random(seed), {}, set(), set()

    def begin(self, streams):
        self.queues = {stream: deque() for stream in streams}

    def do(self, stream, work):
        self.streams_used.add(stream)
        self.queues[stream].append(("do", work))

    def mark(self, stream):
        mark = object()
        self.queues[stream].append(("mark", mark))
        return mark

    def wait(self, stream, mark):
        if self.heeds:
            self.queues[stream].append(("wait", mark))

    def end(self, streams):
        assert set(streams) == set(self.queues)
        while ready := [stream for stream, queue in self.queues.items() if queue and self._is_ready(queue[0])]:
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
    """Run tasks in a drawn order; return all `Shuffled` that were made."""
    used = []

    def draw(device, urgency):
        used.append(Shuffled(len(used)))
        return used[-1]

    monkeypatch.setattr(streams, "streams_for", draw)
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


class TestChunks:
    pytestmark = needs_emulator

    @pytest.mark.parametrize("ragged", [True, False])
    @pytest.mark.parametrize("kind", KINDS)
    def test_products_beside_the_loops(self, emulate, in_chunks, shuffled, kind, ragged):
        machine = emulate(12)
        in_chunks(2)
        torch.manual_seed(1)
        compare(KINDS[kind](5, 30), 3, 7, ragged=ragged)
        assert counts(machine) == [4, 4]  # the last chunk is a step long
        assert [s.streams_used for s in shuffled] == [{0, 1, 3}, {0, 1, 3}]

    def test_chunks_through_the_cache(self, emulate, in_chunks, shuffled):
        machine = emulate(24, through_l2=True)
        in_chunks(2)
        torch.manual_seed(2)
        compare(LSTM(5, 72), 9, 5)
        assert counts(machine) == [3, 3]
        assert all(p.through_l2 for p in machine.launched)

    @pytest.mark.parametrize("kind", KINDS)
    def test_chunks_that_grow(self, emulate, in_chunks, shuffled, kind):
        machine = emulate(12)
        in_chunks(2, growth=2.0)
        torch.manual_seed(14)
        compare(KINDS[kind](5, 30), 3, 15)
        assert counts(machine) == [3, 8]  # of 2, 4 and 9 steps; backwards all of 2

    def test_several_launches_for_a_chunk(self, emulate, in_chunks, shuffled, monkeypatch):
        monkeypatch.setattr(plans, "ROWS", (8,))
        machine = emulate(14, through_l2=True)
        in_chunks(2)
        torch.manual_seed(3)
        compare(LSTM(3, 72), 20, 5)
        assert counts(machine)[1] == 9

    @pytest.mark.parametrize("rows", slow_after(1, [32, 64]))
    def test_plans_with_many_rows(self, emulate, in_chunks, shuffled, monkeypatch, rows):
        monkeypatch.setattr(plans, "ROWS", (rows,))
        machine = emulate(12)
        in_chunks(3)
        torch.manual_seed(13)
        compare(LSTM.stack(5, 30, 1, bidirectional=True), 40, 7)
        assert {(p.rows, p.through_l2) for p in machine.launched} == {(rows, False)}

    def test_the_same_bits_in_chunks(self, emulate, in_chunks):
        emulate(12)
        torch.manual_seed(4)
        layer = LSTM(5, 30).to(NARROW)
        given = draw(layer, 3, 9, ragged=True)
        whole = read(deepcopy(layer), *given)
        in_chunks(2)
        chunks = read(deepcopy(layer), *given)
        for name in ("y", "dx", "last hidden", "last cell", "d hidden", "d cell"):
            assert torch.equal(whole[name], chunks[name]), name

    def test_small_products_are_not_worth_a_launch(self, emulate, in_chunks, monkeypatch):
        machine = emulate(12)
        in_chunks(2)
        seven = 2 * 3 * 7 * 30 * 4  # operations for each column of what is multiplied
        monkeypatch.setattr(chunks, "WORTH", {"forward": seven * 5 // 2, "backward": seven * 40 // 2})
        layer = LSTM(5, 30).to(NARROW)
        for steps, launches in ((7, 2), (6, 1)):
            layer(torch.randn(3, steps, 5).to(NARROW))[0].sum().backward()
            assert counts(machine) == [launches, launches]
            machine.launched.clear()

    def test_a_full_chip_is_not_shared(self, emulate, in_chunks):
        machine = emulate(2)
        in_chunks(2)
        torch.manual_seed(11)
        compare(LSTM(5, 30), 3, 7)
        assert counts(machine) == [1, 1]


class TestBeside:
    pytestmark = needs_emulator

    @pytest.mark.parametrize("ragged", [True, False])
    @pytest.mark.parametrize("kind", slow_after(1, KINDS))
    def test_two_directions(self, emulate, in_chunks, shuffled, kind, ragged):
        machine = emulate(18)
        in_chunks(3)
        torch.manual_seed(5)
        compare(KINDS[kind].stack(5, 30, 1, bidirectional=True), 40, 7, ragged=ragged)
        assert counts(machine) == [6, 6]
        assert [s.streams_used for s in shuffled] == [{0, 1, 2, 4}, {0, 1, 2, 4}]
        assert {(p.rows, p.groups) for p in machine.launched} == {(16, 3)}  # 5 groups of 8 rows fit only once

    def test_in_turn_where_only_one_fits(self, emulate, in_chunks):
        machine = emulate(3)
        in_chunks(100)
        torch.manual_seed(6)
        compare(LSTM.stack(5, 30, 1, bidirectional=True), 5, 4)
        assert {p.grid for p in machine.launched} == {2}
        assert counts(machine) == [2, 2]

    def test_without_gradients(self, emulate, in_chunks, shuffled):
        machine = emulate(12)
        in_chunks(3)
        layer = LSTM.stack(5, 30, 1, bidirectional=True).to(NARROW)
        x, memory, valid, _ = draw(layer, 5, 7, ragged=True)
        with torch.no_grad():
            y, after = layer(x, memory, valid=valid)
            with without_accel():
                wanted, end = layer(x, memory, valid=valid)
        assert counts(machine) == [6, 0]
        assert torch.allclose(y.float(), wanted.float(), atol=0.02)
        assert after.equals(end, 0.02)

    def test_who_is_watched_is_called(self, emulate, in_chunks):
        emulate(12)
        in_chunks(3)
        layer, calls = LSTM.stack(5, 30, 1, bidirectional=True).to(NARROW), []
        x = torch.randn(3, 4, 5).to(NARROW)
        layer(x)
        assert not is_watched(layer[0].backwards)
        layer[0].backwards.register_forward_hook(lambda *_: calls.append(1))
        layer(x)
        assert calls == [1]

    def test_what_is_frozen_stays_so(self, emulate, in_chunks):
        emulate(12)
        in_chunks(3)
        layer = LSTM.stack(5, 30, 1, bidirectional=True).to(NARROW)
        layer[0].forwards.requires_grad_(False)
        layer(torch.randn(3, 4, 5).to(NARROW))[0].sum().backward()
        assert all(p.grad is None for p in layer[0].forwards.parameters())
        assert all(p.grad.isfinite().all() for p in layer[0].backwards.parameters())


class TestStack:
    pytestmark = needs_emulator

    @pytest.mark.parametrize("ragged", [True, False])
    @pytest.mark.parametrize("kind", KINDS)
    def test_a_wave(self, emulate, in_chunks, shuffled, kind, ragged):
        machine = emulate(12)
        in_chunks(2)
        torch.manual_seed(7)
        compare(KINDS[kind].stack(5, 30, 4), 6, 5, ragged=ragged)
        assert counts(machine) == [12, 12]
        assert [s.streams_used for s in shuffled] == [{0, 1, 2, 3, 4}, {0, 1, 2, 3, 4, 5}]

    def test_dropout_and_other_layers_part_stacks(self, emulate, in_chunks, shuffled):
        machine = emulate(12)
        in_chunks(2)
        torch.manual_seed(8)
        layer = LSTM.stack(5, 30, 2, dropout=0.5).eval()
        compare(layer, 3, 5, ragged=False)
        assert counts(machine) == [6, 6]  # each alone
        mixed = type(LSTM.stack(5, 30, 1))(LSTM(5, 30), GRU(30, 30), GRU(30, 30))
        machine.launched.clear()
        compare(mixed, 3, 5, ragged=False)
        assert [p.cell for p in machine.launched if p.direction == "forward"] == ["lstm"] * 3 + ["gru"] * 6

    def test_short_sequences_are_read_in_turn(self, emulate, in_chunks):
        machine = emulate(12)
        in_chunks(4)
        torch.manual_seed(12)
        compare(LSTM.stack(5, 30, 2), 3, 6)
        assert counts(machine) == [2, 2]

    def test_a_memory_of_another_layer_is_refused(self, emulate, in_chunks):
        emulate(12)
        in_chunks(2)
        layer = LSTM.stack(5, 30, 2).to(NARROW)
        _, memory, _, _ = draw(LSTM.stack(5, 24, 2), 3, 5, ragged=False)
        with pytest.raises(ValueError, match="hidden"):
            layer(torch.randn(3, 5, 5).to(NARROW), memory)

    def test_autocast(self, emulate, in_chunks, shuffled):
        machine = emulate(12)
        in_chunks(2)
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
def test_a_missing_wait_is_seen(emulate, in_chunks, shuffled, poisoned, monkeypatch, build):
    emulate(12)
    in_chunks(1)
    monkeypatch.setattr(Shuffled, "heeds", False)
    torch.manual_seed(10)
    with pytest.raises(AssertionError):
        compare(build(), 3, 6)


@pytest.mark.parametrize("tasks", [wavefront.forward_tasks, wavefront.backward_tasks])
@pytest.mark.parametrize(("layers", "chunks", "is_stack"), [(1, 5, False), (2, 3, False), (5, 1, False), (4, 6, True)])
@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_no_more_loops_at_once_than_fit(tasks, layers, chunks, is_stack, at_once):
    before, last, loops = {}, {}, []  # all that a task comes after
    for task in tasks(layers, chunks, at_once, is_stack=is_stack).tasks:
        near = [t for t in (last.get(task.stream), *task.after) if t is not None]
        before[task] = set(near).union(*(before[t] for t in near))
        last[task.stream] = task
        loops += [task] if task.what.name == "step" else []
    assert len(loops) == layers * chunks
    assert loops[0].stream == 0
    assert all(early in before[late] for early, late in zip(loops, loops[at_once:], strict=False))


class TestStreams:
    def test_waits_are_for_other_streams_alone(self, shuffled):
        seen = []
        first = StreamTask(0, "a")
        second = StreamTask(0, "b", (first,))
        third = StreamTask(1, "c", (second,))
        perform(Schedule([first, second, third]), seen.append, torch.device("cpu"), [1, 0])
        assert seen == ["a", "b", "c"]

    def test_in_turn_without_a_gpu(self):
        seen = []
        perform(
            Schedule([StreamTask(stream, stream) for stream in (1, 0, 2)]), seen.append, torch.device("cpu"), [1, 0, 0]
        )
        assert seen == [1, 0, 2]
