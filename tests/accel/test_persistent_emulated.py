"""The persistent kernels on an emulated chip: the same source, host code and gradients as on a GPU, against float64."""

from __future__ import annotations

import os
from copy import deepcopy

import pytest
import torch
from emulated import COMPILER

from recollect import GRU, LSTM, RNN
from recollect.accel.cuda.recurrent import persistent, plan as plans
from recollect.core.dispatch import without_accel
from recollect.core.record import readable
from tiers import slow_after

pytestmark = [
    pytest.mark.skipif(COMPILER is None and os.environ.get("CI") != "true", reason="no g++"),
    pytest.mark.usefixtures("poisoned"),
]

CPU = torch.device("cpu")
KINDS = {
    "lstm": LSTM,
    "gru": GRU,
    "rnn_tanh": RNN,
    "rnn_relu": lambda *sizes: RNN(*sizes, nonlinearity="relu"),
}


def draw(layer, batch, steps, dtype, *, ragged):
    """Return inputs, a memory, a mask and weights of the outputs, all representable in the dtype."""
    x = torch.randn(batch, steps, layer.width)
    memory = layer.initial_memory(batch)
    parts = {name: torch.randn_like(part) for name, part, _ in memory._parts()}
    lengths = torch.randint(0, steps + 1, (batch,))
    lengths[0] = steps
    valid = torch.arange(steps) < lengths[:, None] if ragged else None
    weighs = [torch.randn(batch, steps, layer.width_out), *(torch.randn_like(part) for part in parts.values())]
    return x.to(dtype), {name: part.to(dtype) for name, part in parts.items()}, valid, weighs


def read(layer, x, parts, valid, weighs):
    """Return outputs, final memory and all gradients, by name."""
    x = x.clone().requires_grad_()
    parts = {name: part.clone().requires_grad_() for name, part in parts.items()}
    memory = type(layer.initial_memory(1))(**parts)
    y, after = layer(x, memory, valid=valid)
    results = {"y": y} | {f"last {name}": part for name, part, _ in after._parts()}
    sum((r.double() * w.double()).sum() for r, w in zip(results.values(), weighs, strict=True)).backward()
    gradients = {"dx": x.grad} | {f"d{name}": part.grad for name, part in parts.items()}
    gradients |= {f"d{name}": p.grad for name, p in layer.named_parameters()}
    return {name: value.detach().double() for name, value in (results | gradients).items()}


def worst(found, exact):
    """Return the largest error of each, relative to the largest value."""
    return {name: ((found[name] - exact[name]).abs().max() / exact[name].abs().max()).item() for name in exact}


def compare(kind, width, hidden, batch, steps, dtype, *, ragged=True):
    torch.manual_seed(hidden * batch + steps)
    layer = KINDS[kind](width, hidden).to(dtype)
    given = draw(layer, batch, steps, dtype, ragged=ragged)
    found = read(layer, *given)
    with readable():
        plain = read(deepcopy(layer), *given)
        x, parts, valid, weighs = given
        wide = {name: part.double() for name, part in parts.items()}
        exact = read(deepcopy(layer).double(), x.double(), wide, valid, weighs)
    errors, allowed = worst(found, exact), worst(plain, exact)
    unit = torch.finfo(dtype).eps
    for name, error in errors.items():
        assert error <= max(1.5 * allowed[name], unit), (name, error, allowed[name])


@pytest.mark.parametrize("kind", slow_after(1, KINDS))
def test_inside_clusters(emulate, kind):
    machine = emulate(12)
    compare(kind, 5, 72, 20, 5, torch.bfloat16)
    assert [(p.direction, p.through_l2, p.groups, p.cluster) for p in machine.launched] == [
        ("forward", False, 3, 3),
        ("backward", False, 3, 3),
    ]


@pytest.mark.parametrize(
    "rows", slow_after(1, [16, 24])
)  # of which 24 does not divide a block's threads, and has an odd tile
@pytest.mark.parametrize(
    ("kind", "dtype"), [("lstm", torch.bfloat16), ("gru", torch.bfloat16), ("lstm", torch.float16)]
)
def test_sums_that_leave_early(emulate, monkeypatch, kind, dtype, rows):
    monkeypatch.setattr(plans, "ROWS", (rows,))
    machine = emulate(12)
    compare(kind, 5, 150, rows + 4, 4, dtype)
    forward, backward = machine.launched
    assert (forward.cluster, forward.groups, backward.high, backward.rows) == (5, 2, 2, rows)
    assert backward.paired == (dtype == torch.bfloat16)


@pytest.mark.parametrize("kind", slow_after(1, ["lstm", "gru"]))
def test_through_the_cache(emulate, kind):
    machine = emulate(20, through_l2=True)
    compare(kind, 5, 72, 20, 5, torch.bfloat16)
    assert [(p.direction, p.through_l2, p.groups, p.rows, p.blocks) for p in machine.launched] == [
        ("forward", True, 3, 8, 5),
        ("backward", True, 2, 16, 8),
    ]


@pytest.mark.slow
def test_in_chunks_and_slices_of_the_batch(emulate, monkeypatch):
    monkeypatch.setattr(plans, "ROWS", (8,))
    monkeypatch.setattr(plans, "CHUNK_BYTES", 512)
    machine = emulate(16, through_l2=True)
    compare("lstm", 3, 128, 20, 3, torch.float16, ragged=False)
    forward, backward = machine.launched[0], machine.launched[-1]
    assert (forward.chunks, forward.groups, backward.cluster) == (2, 2, 4)
    assert [p.direction for p in machine.launched] == ["forward"] * 2 + ["backward"] * 2


@pytest.mark.slow
def test_few_units(emulate):
    machine = emulate(12)
    compare("gru", 2, 30, 3, 4, torch.float16)
    assert {p.cluster for p in machine.launched} == {2}  # one block would suffice, but cannot send to itself


def test_reading_on_and_rows_that_are_empty(emulate):
    emulate(12)
    layer = LSTM(5, 30).to(torch.bfloat16)
    x = torch.randn(3, 6, 5).to(torch.bfloat16)
    with torch.no_grad():
        whole, end = layer(x)
        first, memory = layer(x[:, :2])
        empty = torch.zeros(3, 3, dtype=torch.bool)
        nothing, same = layer(x[:, :3], memory, valid=empty)
        second, after = layer(x[:, 2:], same)
    assert nothing.eq(0).all()
    assert memory.equals(same, 0.0)
    assert torch.allclose(torch.cat([first, second], 1).float(), whole.float(), atol=0.01)
    assert after.equals(end, 0.02)


def test_only_what_is_asked_for_is_differentiated(emulate):
    machine = emulate(12)
    layer = LSTM(5, 30).to(torch.bfloat16)
    x = torch.randn(3, 4, 5).to(torch.bfloat16)
    _, memory = layer(x)
    memory.cell.sum().backward()  # y and h have no gradient
    assert layer.weight_hh.grad.isfinite().all()
    layer.requires_grad_(False)
    layer(x)
    assert [p.direction for p in machine.launched] == ["forward", "backward", "forward"]


def test_autocast_reads_float32_weights(emulate):
    machine = emulate(12)
    torch.manual_seed(0)
    layer, x = LSTM(5, 30), torch.randn(3, 4, 5)
    with torch.autocast("cpu", torch.bfloat16):
        y, memory = layer(x)
    y.float().sum().backward()
    with without_accel():
        wanted, _ = layer(x)
    assert machine.launched
    assert y.dtype == torch.bfloat16
    assert memory.cell.dtype == layer.weight_hh.grad.dtype == torch.float32
    assert torch.allclose(y.float(), wanted, atol=0.02)


def gradients(layer, x, **how):
    """Return gradients of a sum of squares, by name, inside autocast where requested."""
    layer, x = deepcopy(layer), x.clone().requires_grad_()
    with torch.autocast("cpu", **how):
        y, memory = layer(x)
    (y.float().square().sum() + memory.hidden.float().sum()).backward()
    found = {"dx": x.grad} | {name: p.grad for name, p in layer.named_parameters()}
    return {name: g for name, g in found.items() if g is not None}


@pytest.mark.parametrize("kind", slow_after(1, ["lstm", "gru", "rnn_tanh"]))
@pytest.mark.parametrize("bias", [True, False])
def test_gradients_under_autocast(emulate, kind, bias):
    machine = emulate(12)
    torch.manual_seed(1)
    layer, x = {"lstm": LSTM, "gru": GRU, "rnn_tanh": RNN}[kind](5, 30, bias=bias), torch.randn(3, 4, 5)
    found = gradients(layer, x, dtype=torch.bfloat16)
    assert [p.direction for p in machine.launched] == ["forward", "backward"]
    exact = gradients(layer, x, enabled=False)
    assert len(machine.launched) == 2
    assert found.keys() == exact.keys()
    for name, gradient in found.items():
        assert gradient.dtype == torch.float32
        assert (gradient - exact[name]).norm() <= 0.02 * exact[name].norm(), name


@pytest.mark.parametrize("frozen", [(), ("weight_ih", "bias_hh"), ("weight_ih", "weight_hh", "bias_ih", "bias_hh")])
def test_what_is_frozen_has_no_gradient(emulate, frozen):
    emulate(12)
    torch.manual_seed(2)
    layer, x = GRU(5, 30).to(torch.bfloat16), torch.randn(3, 4, 5).to(torch.bfloat16)
    whole = gradients(layer, x, enabled=False)
    for name in frozen:
        getattr(layer, name).requires_grad_(False)
    found = gradients(layer, x, enabled=False)
    assert found.keys() == whole.keys() - set(frozen)
    assert all(torch.equal(g, whole[name]) for name, g in found.items())


def test_gradients_of_gradients_are_refused(emulate):
    emulate(12)
    layer, x = LSTM(5, 30).to(torch.bfloat16), torch.randn(3, 4, 5).to(torch.bfloat16).requires_grad_()
    (first,) = torch.autograd.grad(layer(x)[0].square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


def test_gates_are_kept_only_for_gradients(emulate, monkeypatch):
    machine, kept = emulate(12), []
    launch = machine.launch
    monkeypatch.setattr(machine, "launch", lambda plan, given: kept.append(given.keeps) or launch(plan, given))
    layer, x = LSTM(5, 30).to(torch.bfloat16), torch.randn(3, 4, 5).to(torch.bfloat16)
    whole, _ = layer(x)
    with torch.no_grad():
        same, _ = layer(x)
    assert kept == [1, 0]
    assert torch.equal(whole, same)


def test_weights_that_changed_are_read_anew(emulate):
    emulate(12)
    layer, x = LSTM(5, 30).to(torch.bfloat16), torch.randn(3, 4, 5).to(torch.bfloat16)
    with torch.no_grad():
        before, _ = layer(x)
        layer.weight_hh.data.mul_(2)  # without a new version
        after, _ = layer(x)
        with without_accel():
            wanted, _ = layer(x)
    assert not torch.equal(before, after)
    assert torch.allclose(after.float(), wanted.float(), atol=0.02)


def test_switched_off_and_out_of_reach(emulate):
    machine = emulate(12)
    layer = LSTM(5, 30).to(torch.bfloat16)
    x = torch.randn(3, 4, 5).to(torch.bfloat16)
    with without_accel():
        layer(x)
    assert not persistent.takes("lstm", x.float(), 30)
    assert not persistent.takes("lstm", x, 4096)
    assert not machine.launched


def test_a_device_without_kernels_has_a_reason(monkeypatch):
    monkeypatch.setattr(persistent, "REASONS", {})
    assert persistent.find_machine(CPU) is None
    assert persistent.REASONS == {"cpu": "not a CUDA device"}


@pytest.mark.parametrize("through_l2", [False, True])
def test_a_block_that_never_comes_is_not_waited_for(emulate, through_l2):
    machine = emulate(20, through_l2=through_l2)
    machine.silent = True
    layer = LSTM(5, 72).to(torch.bfloat16)
    x = torch.randn(3, 4, 5).to(torch.bfloat16)
    with torch.no_grad():
        layer(x)
        with pytest.raises(persistent.KernelGaveUp, match="gave up"):
            layer(x)
        assert layer(x)[0].isfinite().all()  # the library reads from now on
    assert len(machine.launched) == 1


FAULTS = {
    "a state that is not awaited": (False, "await_state(me, shared, guard, step, piece);", ""),
    "a chunk that is not awaited": (True, "look(counter) >= wanted", "true"),
    "sums that are not awaited": (False, "if (turn > 0) await_sums(shared, guard, turn);", ""),
    "a product that is not awaited": (False, "    wgmma_wait();\n", ""),
    "one buffer where two are needed": (False, "step % BUFFERS * STATE_BYTES", "0 * STATE_BYTES"),
}


@pytest.mark.parametrize("fault", slow_after(3, FAULTS))
def test_the_emulator_sees(emulate, fault):
    through_l2, right, wrong = FAULTS[fault]
    machine = emulate(20, through_l2=through_l2)
    machine.fault = (right, wrong)
    with pytest.raises(AssertionError):
        compare("lstm", 5, 72, 8, 4, torch.bfloat16)


WAIT = "await_state(me, shared, guard, step, piece);"
HAS_PART = "const bool has_part = AT_ONCE * PARTS == THREADS || thread_index() < AT_ONCE * PARTS;"
FAULTS_IN_PARTS = {  # with rows of a group
    "the nearer half is not awaited": (16, WAIT, f"if (piece != 0) {WAIT}"),
    "the other half is not awaited": (16, WAIT, f"if (piece == 0) {WAIT}"),
    "sums sent before their product": (16, "            wgmma_wait(1);\n", ""),
    "a slice that is sent twice": (24, HAS_PART, "const bool has_part = true;"),
    "an odd tile read as if two had come": (
        24,
        "if (COLUMN_TILES % 2 && own >= ITEMS_OF_TILE - 64) return number;",
        "",
    ),
}


@pytest.mark.parametrize("fault", slow_after(2, FAULTS_IN_PARTS))
def test_the_emulator_sees_what_goes_in_parts(emulate, monkeypatch, fault):
    rows, right, wrong = FAULTS_IN_PARTS[fault]
    monkeypatch.setattr(plans, "ROWS", (rows,))
    machine = emulate(12)
    machine.fault = (right, wrong)
    with pytest.raises(AssertionError):
        compare("lstm", 5, 150, 20, 4, torch.bfloat16)
