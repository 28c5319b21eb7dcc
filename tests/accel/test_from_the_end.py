"""A time loop from the last step to the first, on an emulated chip: as if x were reversed before, and y after it."""

from __future__ import annotations

import os
from copy import deepcopy

import pytest
import torch
from emulated import COMPILER
from readings import NARROW, draw, read

from recollect import GRU, LSTM, RNN
from recollect.accel.cuda.recurrent import persistent, plan as plans
from tiers import slow_after

pytestmark = [
    pytest.mark.skipif(COMPILER is None and os.environ.get("CI") != "true", reason="no g++"),
    pytest.mark.usefixtures("poisoned"),
]
KINDS = {"lstm": LSTM, "gru": GRU, "rnn_tanh": RNN}


@pytest.fixture
def watched(emulate, monkeypatch):
    """Return a chip, and a list of the directions in time of all that it launches."""

    def start(multiprocessors, **how):
        machine, signs = emulate(multiprocessors, **how), []
        launch = machine.launch
        monkeypatch.setattr(machine, "launch", lambda plan, a: signs.append(a.by_step > 0) or launch(plan, a))
        return machine, signs

    return start


def compare(kind, hidden, batch, steps, signs):
    """Without a mask the second layer begins at the end; with one that is True everywhere x is reversed for it."""
    torch.manual_seed(hidden + batch + steps)
    layer = KINDS[kind].stack(5, hidden, 1, bidirectional=True).to(NARROW)
    x, memory, _, weighs = draw(layer, batch, steps, ragged=False)
    found = read(deepcopy(layer), x, memory, None, weighs)
    assert signs.count(False) == len(signs) / 2 > 0
    signs.clear()
    turned = read(deepcopy(layer), x, memory, torch.ones(batch, steps, dtype=torch.bool), weighs)
    assert all(signs)
    for name, value in turned.items():
        # The loops have the same bits; large matmuls sum the steps in another order.
        allowed = 0.0 if name in ("y", *memory_names(found)) else 2 * torch.finfo(NARROW).eps
        assert (found[name] - value).abs().max() <= allowed * value.abs().max(), name


def memory_names(found):
    """Return the names of the final states, and of the gradients of the initial ones."""
    return [name for name in found if name.endswith((".hidden", ".cell"))]


@pytest.mark.parametrize("kind", slow_after(1, KINDS))
@pytest.mark.parametrize("size", [100, 3])
def test_inside_clusters(watched, in_chunks, kind, size):
    machine, signs = watched(24)
    in_chunks(size)
    compare(kind, 72, 9, 10, signs)
    assert {(p.through_l2, p.groups) for p in machine.launched} == {(False, 2)}
    assert len(machine.launched) == 2 * 4 * (1 if size == 100 else 4)


@pytest.mark.parametrize("kind", slow_after(1, KINDS))
def test_through_the_cache(watched, in_chunks, kind):
    machine, signs = watched(48, through_l2=True)
    in_chunks(2)
    compare(kind, 72, 9, 5, signs)
    assert all(p.through_l2 for p in machine.launched)
    assert len(machine.launched) == 2 * 4 * 3


@pytest.mark.slow
def test_several_launches_for_a_batch(watched, in_chunks, monkeypatch):
    monkeypatch.setattr(plans, "ROWS", (8,))
    monkeypatch.setattr(persistent, "takes_several", lambda *_, **__: True)  # though they are read in turn
    machine, signs = watched(14)
    in_chunks(2)
    compare("lstm", 72, 40, 5, signs)
    assert all(p.batch < 40 and p.through_l2 for p in machine.launched)  # a cluster's plan has the whole batch


def test_one_step(watched, in_chunks):
    _, signs = watched(12)
    in_chunks(100)
    compare("gru", 30, 3, 1, signs)


def test_x_is_laid_out_once(watched, in_chunks, monkeypatch):
    machine, _ = watched(12)
    in_chunks(100)
    laid, do = [], machine.do
    monkeypatch.setattr(machine, "do", lambda chore, n, a: laid.append(getattr(a, "steps", None)) or do(chore, n, a))
    layer = LSTM.stack(5, 30, 1, bidirectional=True).to(NARROW)
    with torch.no_grad():
        layer(torch.randn(3, 4, 5).to(NARROW))
    assert laid == [4, 0]


POINTERS = {  # of each, how it moves from step to step
    "logits": ("logits += step_size * SLOTS", "lstm"),
    "outputs": ("outputs += step_size", "lstm"),
    "cells": ("cells += step_size", "lstm"),
    "gates": ("gates -= size * SLOTS", "lstm"),
    "cells before": ("before -= size", "lstm"),
    "outputs before": ("before -= size", "gru"),
    "d_outputs": ("d_outputs -= a.step_stride", "rnn_tanh"),
    "d_logits": ("d_logits -= size * SLOTS", "lstm"),
}


@pytest.mark.parametrize("pointer", slow_after(2, POINTERS))
def test_a_pointer_that_does_not_go_back_is_seen(watched, in_chunks, pointer):
    moves, kind = POINTERS[pointer]
    pointer, by = moves.split("= ")
    machine, signs = watched(12)
    in_chunks(100)
    compare(kind, 30, 3, 4, signs)
    signs.clear()
    machine.fault = (moves, f"{pointer}= ({by} > 0 ? {by} : 0)")  # stands still, since elsewhere there is no memory
    with pytest.raises(AssertionError):
        compare(kind, 30, 3, 4, signs)
