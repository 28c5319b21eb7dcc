"""The persistent kernels on a Hopper GPU: against float64 over a grid of sizes, ragged, concurrent, in a CUDA graph."""

from __future__ import annotations

from copy import deepcopy
from threading import Thread

import pytest
import torch
from readings import read as read_stack
from torch.utils._pytree import tree_flatten, tree_unflatten

from recollect import GRU, LSTM, RNN
from recollect.accel.cuda.recurrent import forms, persistent
from recollect.core.capture import warm_up
from recollect.core.dispatch import without_accel

HOPPER = torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
pytestmark = pytest.mark.skipif(not HOPPER, reason="no Hopper GPU")

STEPS = 40
SIZES = [(1, 64), (3, 72), (16, 128), (64, 200), (64, 256), (20, 512), (128, 512), (64, 650), (16, 1024), (64, 1024)]
SIZES += [(128, 1024), (40, 1500)]
TF32_SIZES = [(17, 200), (64, 200), (64, 256), (64, 384), (20, 512), (128, 512), (64, 640)]
TF32_SIZES += [(64, 768), (16, 1024), (64, 1024)]  # these have weights in shared memory
UNITS = {torch.bfloat16: 2**-7, torch.float16: 2**-10, torch.float32: 2**-12}  # of one rounding; of half a tf32's
KINDS = {"lstm": LSTM, "gru": GRU, "rnn_tanh": RNN, "rnn_relu": lambda *s, **k: RNN(*s, nonlinearity="relu", **k)}


@pytest.fixture(autouse=True)
def nobody_gave_up(monkeypatch):
    yield
    torch.cuda.synchronize()
    persistent.check()
    assert not any(device.startswith("cuda") for device in persistent.REASONS), persistent.REASONS


def make(kind, batch, hidden, dtype, *, ragged, width=None, steps=STEPS):
    torch.manual_seed(hidden + batch)
    width = width or (128 if dtype is torch.float32 else 48)  # few inputs in float32 are left to torch
    layer = KINDS[kind](width, hidden, device="cuda").to(dtype)
    x = torch.randn(batch, steps, width, device="cuda").to(dtype)
    lengths = torch.randint(0, steps + 1, (batch,), device="cuda")
    lengths[0] = steps
    valid = torch.arange(steps, device="cuda") < lengths[:, None] if ragged else None
    memory = layer.initial_memory(batch)
    parts = {name: torch.randn_like(part) for name, part, _ in memory._parts()}
    weighs = [torch.randn(batch, steps, hidden, device="cuda"), *(torch.randn_like(p.float()) for p in parts.values())]
    return layer, x, parts, valid, weighs


def read(layer, x, parts, valid, weighs):
    x = x.clone().requires_grad_()
    parts = {name: part.clone().requires_grad_() for name, part in parts.items()}
    y, after = layer(x, type(layer.initial_memory(1))(**parts), valid=valid)
    results = {"y": y} | {f"last {name}": part for name, part, _ in after._parts()}
    sum((r.double() * w.double()).sum() for r, w in zip(results.values(), weighs, strict=True)).backward()
    gradients = {"dx": x.grad} | {f"d{name}": part.grad for name, part in parts.items()}
    gradients |= {f"d{name}": p.grad for name, p in layer.named_parameters()}
    return {name: value.detach().double() for name, value in (results | gradients).items()}


def errors(found, exact):
    return {name: ((found[name] - exact[name]).norm() / exact[name].norm()).item() for name in exact}


def errors_of_both(layer, x, parts, valid, weighs):
    """Return our errors, and the library's in the same dtype, against float64."""
    found = read(deepcopy(layer), x, parts, valid, weighs)
    with without_accel():
        library = read(deepcopy(layer), x, parts, valid, weighs)
        wide = {name: part.double() for name, part in parts.items()}
        exact = read(deepcopy(layer).double(), x.double(), wide, valid, weighs)
    return errors(found, exact), errors(library, exact)


def compare(layer, x, *rest):
    """Our errors are at most those of the library in the same dtype, or the dtype's own."""
    assert persistent.takes(layer.kernel, x, layer.hidden), persistent.REASONS
    ours, theirs = errors_of_both(layer, x, *rest)
    broken = {n: (e, theirs[n]) for n, e in ours.items() if not e <= max(1.3 * theirs[n], UNITS[x.dtype])}
    assert not broken, broken


@pytest.mark.parametrize(("batch", "hidden"), SIZES)
def test_lstm_over_the_grid(batch, hidden):
    compare(*make("lstm", batch, hidden, torch.bfloat16, ragged=False))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("batch", "hidden"), [(20, 200), (30, 520)])
def test_every_cell_with_ragged_rows(kind, dtype, batch, hidden):
    compare(*make(kind, batch, hidden, dtype, ragged=True))


@pytest.mark.parametrize(("kind", "batch", "hidden"), [("rnn_tanh", 1, 1500), ("rnn_tanh", 1, 650), ("gru", 16, 1500)])
def test_no_sum_is_cut_into_narrow_parts(kind, batch, hidden):
    given = make(kind, batch, hidden, torch.bfloat16, ragged=False, width=hidden, steps=256)
    ours, theirs = errors_of_both(*given)
    assert all(ours[name] < theirs[name] for name in ("y", "dx", "dweight_hh")), (ours, theirs)


@pytest.mark.parametrize(("batch", "hidden"), TF32_SIZES)
def test_float32_by_tf32_over_its_grid(batch, hidden):
    compare(*make("lstm", batch, hidden, torch.float32, ragged=False))


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize(("batch", "hidden"), [(20, 200), (30, 520)])
def test_every_cell_by_tf32_with_ragged_rows(kind, batch, hidden):
    compare(*make(kind, batch, hidden, torch.float32, ragged=True))


def test_float32_stays_whole_where_tf32_is_not_allowed(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    layer, x, *_ = make("lstm", 64, 256, torch.float32, ragged=False)
    assert not persistent.takes(layer.kernel, x, layer.hidden)


FULL = [("lstm", 1, 1024), ("gru", 15, 512), ("rnn_tanh", 64, 512), ("rnn_relu", 20, 200)]
ROUNDED = [(16, 512), (16, 652), (16, 1024), (17, 200), (17, 650), (128, 200)]


@pytest.mark.parametrize(("kind", "batch", "hidden"), FULL)
def test_float32_stays_in_full_precision_with_few_rows_and_in_rnns(kind, batch, hidden):
    layer, x, *_ = make(kind, batch, hidden, torch.float32, ragged=False)
    assert not persistent.takes(layer.kernel, x, layer.hidden)


@pytest.mark.parametrize(("kind", "batch", "hidden"), [(kind, *size) for kind in ("lstm", "gru") for size in ROUNDED])
def test_float32_is_rounded_where_the_library_rounds_it(kind, batch, hidden):
    layer, x, *_ = make(kind, batch, hidden, torch.float32, ragged=False)
    assert persistent.takes(layer.kernel, x, layer.hidden)
    with torch.no_grad(), without_accel():
        layer.weight_ih.zero_()  # of the two matmuls that of the steps is left
        exact = deepcopy(layer).double()(x.double())[0]
        assert errors({"y": layer(x)[0].double()}, {"y": exact})["y"] > 1e-5


def test_a_thousand_steps_by_tf32_stay_right():
    compare(*make("lstm", 64, 1024, torch.float32, ragged=False, width=64, steps=1000))


def test_large_products_are_lent_tf32_and_it_is_given_back():
    layer, x, *_ = make("lstm", 64, 512, torch.float32, ragged=False)
    before, a = torch.backends.cuda.matmul.allow_tf32, torch.randn(512, 512, device="cuda")
    wanted = a @ a
    layer(x.requires_grad_())[0].sum().backward()
    assert torch.backends.cuda.matmul.allow_tf32 == before
    assert torch.equal(a @ a, wanted)


def test_a_thousand_steps_stay_right():
    compare(*make("lstm", 64, 1024, torch.bfloat16, ragged=False, width=64, steps=1000))


def test_the_same_call_gives_the_same_bits():
    given = make("lstm", 64, 512, torch.bfloat16, ragged=True)
    first, second = (read(deepcopy(given[0]), *given[1:]) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_thread_that_has_launched_nothing_else():
    layer, x, parts, _, _ = make("lstm", 16, 256, torch.bfloat16, ragged=False)
    memory, found = type(layer.initial_memory(1))(**parts), []

    def read():
        with torch.no_grad():
            found.append(layer(x, memory)[0])

    read()
    thread = Thread(target=read)
    thread.start()
    thread.join()
    assert len(found) == 2
    assert torch.equal(*found)


@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream")  # of what was captured, which is kept here
@pytest.mark.parametrize("hidden", [256, 1024])
def test_in_a_graph(hidden):
    layer, x, _, _, _ = make("lstm", 16, hidden, torch.bfloat16, ragged=False)
    x.requires_grad_()

    def update():
        y, _ = layer(x)
        y.float().square().sum().backward()
        return y

    warm_up(update)
    layer.zero_grad(set_to_none=True)
    x.grad = None
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = update()
    with torch.no_grad():
        x.normal_()
    for p in (*layer.parameters(), x):
        p.grad.zero_()
    graph.replay()
    replayed = {"y": y.clone(), "dx": x.grad.clone(), "dw": layer.weight_hh.grad.clone()}
    x.grad = None
    layer.zero_grad(set_to_none=True)
    y = update()
    for name, value in {"y": y, "dx": x.grad, "dw": layer.weight_hh.grad}.items():
        # Matmuls may be tiled otherwise in a CUDA graph.
        assert (replayed[name] - value).norm() <= 0.01 * value.norm(), name


def test_autocast():
    layer = LSTM(48, 256, device="cuda")
    x = torch.randn(16, STEPS, 48, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        y, memory = layer(x)
    y.float().sum().backward()
    with torch.no_grad():
        wanted, _ = layer(x)
    assert y.dtype == torch.bfloat16
    assert memory.cell.dtype == layer.weight_hh.grad.dtype == torch.float32
    assert torch.allclose(y.float(), wanted, atol=0.02)


def make_stack(kind, batch, hidden, depth, *, bidirectional=False, ragged=True, steps=300, width=48):
    torch.manual_seed(hidden + batch + depth)
    layer = KINDS[kind].stack(width, hidden, depth, bidirectional=bidirectional, device="cuda").to(torch.bfloat16)
    x = torch.randn(batch, steps, width, device="cuda").bfloat16()
    lengths = torch.randint(0, steps + 1, (batch,), device="cuda")
    lengths[0] = steps
    valid = torch.arange(steps, device="cuda") < lengths[:, None] if ragged else None
    leaves, structure = tree_flatten(layer.initial_memory(batch, like=x))
    memory = tree_unflatten([torch.randn_like(leaf) for leaf in leaves], structure)
    weighs = [torch.randn(batch, steps, layer.width_out, device="cuda")]
    return layer, x, memory, valid, [*weighs, *(torch.randn(leaf.shape, device="cuda") for leaf in leaves)]


def compare_stack(layer, x, memory, valid, weighs):
    found = read_stack(deepcopy(layer), x, memory, valid, weighs)
    with without_accel():
        library = read_stack(deepcopy(layer), x, memory, valid, weighs)
        exact = read_stack(deepcopy(layer).double(), x.double(), memory.to(torch.float64), valid, weighs)
    ours, theirs = errors(found, exact), errors(library, exact)
    unit = torch.finfo(x.dtype).eps
    broken = {n: (e, theirs[n]) for n, e in ours.items() if not e <= max(1.3 * theirs[n], unit)}
    assert not broken, broken


STACKS = [("lstm", 64, 512, 4, False), ("gru", 20, 200, 3, False), ("lstm", 64, 1024, 2, False)]
STACKS += [("lstm", 64, 512, 1, True), ("gru", 30, 256, 2, True), ("rnn_tanh", 64, 650, 1, True)]


@pytest.mark.parametrize(("kind", "batch", "hidden", "depth", "bidirectional"), STACKS)
def test_loops_that_share_the_chip(kind, batch, hidden, depth, bidirectional):
    compare_stack(*make_stack(kind, batch, hidden, depth, bidirectional=bidirectional))


@pytest.mark.parametrize("steps", [300, 1000])
@pytest.mark.parametrize(("kind", "batch", "hidden"), [("lstm", 64, 512), ("gru", 30, 256), ("rnn_tanh", 64, 650)])
def test_a_loop_from_the_end(kind, batch, hidden, steps):
    """Without a mask the second layer begins at the last step; with one that is True everywhere x is reversed."""
    layer, x, memory, _, weighs = make_stack(
        kind, batch, hidden, 1, bidirectional=True, ragged=False, steps=steps, width=hidden
    )
    both = [layer[0].forwards, layer[0].backwards]
    assert forms._can_read_at_once(both, x, (None, None), is_stack=False)
    compare_stack(layer, x, memory, None, weighs)
    found = read_stack(deepcopy(layer), x, memory, None, weighs)
    turned = read_stack(deepcopy(layer), x, memory, torch.ones(x.shape[:2], dtype=torch.bool, device="cuda"), weighs)
    assert max(errors(found, turned).values()) < 0.01


def test_products_beside_the_backward_loop():
    compare(*make("lstm", 64, 1024, torch.bfloat16, ragged=True, steps=300))
    compare(*make("gru", 64, 512, torch.float16, ragged=True, steps=300))


@pytest.mark.parametrize("bidirectional", [False, True])
def test_waits_are_kept_under_load(bidirectional):
    """A missing wait shows now and then: inputs in turn, so that what was there before is wrong, and a busy chip."""
    layer, x, *rest = make_stack("lstm", 64, 512, 2, bidirectional=bidirectional, ragged=False, steps=512)
    inputs = [x, torch.randn_like(x)]
    first = [read_stack(deepcopy(layer), x, *rest) for x in inputs]
    busy, other = torch.randn(4096, 4096, device="cuda").bfloat16(), torch.cuda.Stream()
    for turn in range(20):
        with torch.cuda.stream(other):
            for _ in range(turn):
                busy @ busy
        again = read_stack(deepcopy(layer), inputs[turn % 2], *rest)
        assert max(errors(again, first[turn % 2]).values()) < 1e-3


@pytest.mark.parametrize(("hidden", "depth", "bidirectional"), [(512, 3, False), (512, 1, True), (1024, 1, False)])
def test_side_by_side_in_a_graph(hidden, depth, bidirectional):
    layer, x, *_ = make_stack("lstm", 64, hidden, depth, bidirectional=bidirectional)
    x.requires_grad_()
    wanted = (x, *layer.parameters())

    def update():
        y, _ = layer(x)
        return y.detach(), *torch.autograd.grad(y.float().square().sum(), wanted)

    warm_up(update)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = update()
    with torch.no_grad():
        x.normal_()
    for _ in range(3):
        graph.replay()
    for replayed, value in zip(found, update(), strict=True):
        # Matmuls may be tiled otherwise in a CUDA graph.
        assert (replayed - value).norm() <= 0.01 * value.norm()
