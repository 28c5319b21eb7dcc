"""The kernel for recurrences on a CPU, used at every size: against the readable form, `torch.nn` and float64."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.utils.flop_counter import FlopCounterMode

from recollect.accel.cell_inputs import CellInputs
from recollect.accel.cpu import compiler as c_compiler, recurrence as recurrences, team, time_loop
from recollect.core.record import readable
from recollect.laws.check import check_layer
from recollect.layers.recurrent.gru import GRU
from recollect.layers.recurrent.lstm import LSTM
from recollect.layers.recurrent.rnn import RNN
from tiers import slow_after

LAYERS = {
    "rnn_tanh": lambda *size, **options: RNN(*size, **options),
    "rnn_relu": lambda *size, **options: RNN(*size, nonlinearity="relu", **options),
    "gru": lambda *size, **options: GRU(*size, **options),
    "lstm": lambda *size, **options: LSTM(*size, **options),
}
SHAPES = [(1, 1, 1, 1), (3, 5, 4, 17), (9, 7, 5, 32), (70, 3, 8, 37)]  # B, T, D, H: parts of tiles, several groups

LEARNT = [(True, 16, 256, True), (True, 15, 300, False), (True, 16, 255, False), (False, 16, 256, False)]  # B, T

every_kind = pytest.mark.parametrize("kind", LAYERS)


@pytest.fixture(autouse=True)
def at_every_size(monkeypatch):
    for name in ("FEWEST", "FEWEST_STEPS"):
        monkeypatch.setattr(recurrences, name, 1)
    monkeypatch.setattr(recurrences, "_is_quicker", lambda kind, given, is_ragged: True)
    try:
        c_compiler.find_compiler()
    except c_compiler.NoCompiler as error:
        pytest.skip(str(error))
    assert time_loop.library_for(torch.float64) is not None, time_loop.REASONS


@pytest.fixture
def threads():
    """Set the number of threads; restore it afterwards."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def build(kind, width, hidden, dtype=torch.float64, **options):
    torch.manual_seed(0)
    return LAYERS[kind](width, hidden, **options).to(dtype)


def drawn(*shape, dtype=torch.float64, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()


def case(kind, shape, dtype=torch.float64, ragged=False, **options):
    """Return a layer, inputs, a memory to start from and the valid steps; one row is empty where they are ragged."""
    rows, steps, width, hidden = shape
    layer = build(kind, width, hidden, dtype, **options)
    x = drawn(rows, steps, width, dtype=dtype)
    memory = layer.initial_memory(rows, like=x)
    memory = type(memory)(**{n: drawn(rows, hidden, dtype=dtype, seed=i) for i, n in enumerate(memory.tensors(), 2)})
    valid = torch.arange(steps) < (torch.arange(rows) * 3 % (steps + 1))[:, None] if ragged else None
    return layer, x, memory, valid


def results(layer, x, memory, valid):
    """Return outputs, last memory, and the gradients of all inputs, from fixed upstream ones."""
    y, after = layer(x, memory, valid=valid)
    found = [y, *after.tensors().values()]
    upstream = [drawn(*t.shape, dtype=t.dtype, seed=9).detach() for t in found]
    leaves = [x, *memory.tensors().values(), *layer.parameters()]
    return [t.detach() for t in found] + list(torch.autograd.grad(found, leaves, upstream))


def readably(*what):
    with readable():
        return results(*what)


def assert_close(ours, theirs, tol):
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype
        assert (a.double() - b.double()).abs().max() <= tol * (1 + b.double().abs().max())


def is_kernels(y):
    return type(y.grad_fn).__name__ == "_RecurrenceBackward"


# ---- the same as the readable form -------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize(("dtype", "tol"), [(torch.float64, 1e-12), (torch.float32, 1e-5)], ids=str)
@pytest.mark.parametrize(("ragged", "bias"), list(product([False, True], [True, False])))
def test_values_and_gradients_are_those_of_the_readable_form(kind, dtype, tol, ragged, bias):
    for shape in SHAPES:
        one = case(kind, shape, dtype, ragged, bias=bias)
        if not ragged:
            assert is_kernels(one[0](*one[1:3])[0])
        assert_close(results(*one), readably(*one), tol)


@every_kind
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_the_laws_hold(kind, dtype):
    check_layer(build(kind, 3, 20, dtype))
    with torch.no_grad():
        check_layer(build(kind, 3, 20, dtype), laws=["split", "reference", "padding"])


@every_kind
def test_inputs_need_not_be_contiguous(kind):
    layer, x, memory, _ = case(kind, (4, 6, 5, 19))
    strided = x.detach().transpose(0, 1).contiguous().transpose(0, 1).requires_grad_()
    memory_t = memory._map(lambda t: t.detach().t().contiguous().t().requires_grad_(), lambda m: m)
    assert not strided.is_contiguous()
    assert_close(results(layer, strided, memory_t, None), results(layer, x, memory, None), 1e-12)


@every_kind
def test_outputs_alone_are_as_good_as_outputs_to_be_differentiated(kind):
    layer, x, memory, valid = case(kind, (9, 7, 5, 32), ragged=True)
    y, after = layer(x, memory, valid=valid)
    with torch.no_grad():
        y_alone, after_alone = layer(x, memory, valid=valid)
    assert torch.equal(y, y_alone)
    assert after.equals(after_alone, 0)


@every_kind
def test_a_graph_that_is_kept_gives_the_same_gradients_again(kind):
    layer, x, memory, _ = case(kind, (3, 5, 4, 17))
    y = layer(x, memory)[0].sum()
    once, again = (torch.autograd.grad(y, list(layer.parameters()), retain_graph=True) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(once, again, strict=True))


@every_kind
def test_large_and_broken_values(kind):
    """Gates shut and open without overflow, and what is not a number stays in its row."""
    layer, x, memory, _ = case(kind, (3, 5, 4, 17))
    with torch.no_grad():
        x[0] *= 1e6
        x[1, 2] = torch.nan
        y = layer(x, memory)[0]
    with torch.no_grad(), readable():
        y_readable = layer(x, memory)[0]
    assert y[[0, 2]].isfinite().all()
    assert y[1, 2:].isnan().any(1).all()
    assert not y[1, :2].isnan().any()
    assert_close([y[[0, 2]]], [y_readable[[0, 2]]], 1e-12)


# ---- threads -----------------------------------------------------------------------------------------------


@every_kind
def test_the_number_of_threads_changes_no_bit_of_the_loop(kind, threads, monkeypatch):
    layer, x, memory, valid = case(kind, (7, 6, 5, 19), ragged=True)
    y, after = layer(x, memory, valid=valid)
    for own_threads in (True, False):
        threads(3)
        if not own_threads:
            monkeypatch.setattr(team, "torch_threads", lambda: None)
        y_shared, after_shared = layer(x, memory, valid=valid)
        assert torch.equal(y, y_shared)
        assert after.equals(after_shared, 0)
        assert_close(results(layer, x, memory, valid), readably(layer, x, memory, valid), 1e-12)


def test_torchs_own_threads_are_found():
    """Here torch computes with OpenMP; where it does not, Python's threads run the loop."""
    if "OpenMP" in torch.__config__.parallel_info().split("ATen parallel backend:")[1]:
        assert team.torch_threads() is not None


# ---- precision ---------------------------------------------------------------------------------------------


def errors(found, truth):
    """Relative to the largest value of each tensor."""
    return [float((a.double() - b).abs().max() / b.abs().max()) for a, b in zip(found, truth, strict=True)]


@every_kind
@pytest.mark.parametrize("dtype", slow_after(1, [torch.float32, torch.bfloat16]), ids=str)
def test_errors_are_no_larger_than_torchs(kind, dtype):
    """Against float64 with the same weights and inputs; of the readable form where torch's kernel may not run."""
    layer, x, memory, _ = case(kind, (16, 40, 32, 64), dtype)
    exact = LAYERS[kind](32, 64).double()
    exact.load_state_dict(layer.state_dict())
    in_double = memory._map(lambda t: t.detach().double().requires_grad_(), lambda m: m)
    truth = readably(exact, x.detach().double().requires_grad_(), in_double, None)
    ours = errors(results(layer, x, memory, None), truth)
    theirs = errors(readably(layer, x, memory, None), truth)
    if kind != "lstm":
        theirs = [max(pair) for pair in zip(theirs, errors(torchs(layer, x, memory), truth), strict=True)]
    theirs[-3] = max(theirs[-4:-2])  # of W_hh one product of all steps, as of W_ih, not a sum of one product a step
    assert all(a <= 2 * b for a, b in zip(ours, theirs, strict=True)), (ours, theirs)


def torchs(layer, x, memory):
    """Return what `results` returns, from `torch.nn`."""
    module = layer.to_torch()
    y, h = module(x, memory.hidden[None])
    found = [y, h[0]]
    upstream = [drawn(*t.shape, dtype=t.dtype, seed=9).detach() for t in found]
    return [t.detach() for t in found] + list(
        torch.autograd.grad(found, [x, memory.hidden, *module.parameters()], upstream)
    )


@every_kind
@pytest.mark.parametrize("hidden", [32, 37])
def test_processors_without_products_of_bf16_pairs_give_the_same(kind, hidden, monkeypatch):
    one = case(kind, (5, 9, 8, hidden), torch.bfloat16, ragged=True)
    in_pairs = results(*one)
    reals = time_loop.compiled("BFLOAT16", "WITHOUT_PAIRS")
    monkeypatch.setattr(recurrences, "library_for", lambda dtype: reals)
    assert_close(results(*one), in_pairs, 2e-2)


@every_kind
def test_bf16_is_read_by_the_kernel_and_in_chunks_too(kind):
    layer, x, memory, _ = case(kind, (4, 12, 8, 24), torch.bfloat16)
    y, after = layer(x, memory)
    assert is_kernels(y)
    first, between = layer(x[:, :5], memory)
    second, after_pieces = layer(x[:, 5:], between)
    assert_close([torch.cat([first, second], 1)], [y], 1e-2)
    assert after_pieces.equals(after, 1e-2)


# ---- other tracers than autograd ---------------------------------------------------------------------------


@every_kind
def test_gradients_can_be_differentiated(kind):
    layer, x, memory, _ = case(kind, (2, 3, 2, 3))
    weights = [p for p in layer.parameters() if p.dim() == 2]

    def second(*what):
        y, after = layer(*what)
        first = torch.autograd.grad(y.pow(2).sum() + after.hidden.sum(), [x, *weights], create_graph=True)
        return torch.autograd.grad(sum(g.pow(2).sum() for g in first), [x, *weights])

    ours = second(x, memory)
    assert is_kernels(layer(x, memory)[0])
    with readable():
        theirs = second(x, memory)
    assert_close(ours, theirs, 1e-10)


@every_kind
def test_weights_of_a_functional_call_get_the_gradients(kind):
    layer, x, memory, _ = case(kind, (3, 5, 4, 17))
    others = {name: (p.detach() * 0.5).requires_grad_() for name, p in layer.named_parameters()}
    for create_graph in (False, True):
        y = torch.func.functional_call(layer, others, (x, memory))[0]
        ours = torch.autograd.grad(y.sum(), list(others.values()), create_graph=create_graph)
        with readable():
            y = torch.func.functional_call(layer, others, (x, memory))[0]
        assert_close([g.detach() for g in ours], torch.autograd.grad(y.sum(), list(others.values())), 1e-12)


@every_kind
def test_the_plain_form_serves_whoever_must_see_torchs_operations(kind):
    layer, x, memory, _ = case(kind, (3, 5, 4, 17))
    y = layer(x, memory)[0]

    def read(x):
        return layer(x, memory)[0]

    with torch.autocast("cpu", torch.bfloat16):
        assert not is_kernels(read(x))
    assert_close([torch.func.grad(lambda x: read(x).sum())(x)], torch.autograd.grad(y.sum(), x), 1e-10)
    with FlopCounterMode(display=False) as counter:
        assert_close([read(x)], [y], 1e-10)
    assert counter.get_total_flops() > 0


@pytest.mark.filterwarnings("ignore:.*torch.jit.script. is deprecated:DeprecationWarning")  # torch's own doing
@pytest.mark.parametrize("kind", ["rnn_tanh", "rnn_relu", "gru"])
def test_forward_derivatives_are_those_of_the_plain_form(kind):
    layer, x, memory, _ = case(kind, (3, 5, 4, 17))

    def slope():
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x.detach(), torch.ones_like(x))
            return forward_ad.unpack_dual(layer(dual, memory)[0]).tangent.detach()

    ours = slope()
    with readable():
        assert_close([ours], [slope()], 1e-10)


def test_weights_made_of_others_are_read_plainly():
    layer, x, memory, _ = case("gru", (3, 5, 4, 17))
    nn.utils.parametrizations.weight_norm(layer, "weight_hh")
    y = layer(x, memory)[0]
    assert not is_kernels(y)
    y.sum().backward()
    assert layer.parametrizations.weight_hh.original0.grad is not None


# ---- when it is used ---------------------------------------------------------------------------------------


def test_little_work_is_not_worth_a_compiler(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(recurrences, "library_for", lambda dtype: pytest.fail("a kernel was wanted"))
    for kind in LAYERS:
        layer, x, memory, _ = case(kind, (2, 9, 8, 16), torch.float32)
        layer(x, memory)
        with torch.no_grad():
            layer(x[:, :1], memory)
    GRU(8, 16, reset="before")(x)


def test_torchs_own_kernels_are_used_where_they_are_as_quick(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(recurrences, "FEWEST", 1)
    assert not is_kernels(read_once("lstm", torch.float32))
    assert all(is_kernels(read_once(kind, torch.float32)) for kind in LAYERS if kind != "lstm")
    assert all(is_kernels(read_once(kind, dtype)) for kind in LAYERS for dtype in (torch.float64, torch.bfloat16))


@pytest.mark.parametrize(("learns", "rows", "steps", "taken"), LEARNT)
def test_an_lstm_that_learns_is_read_by_the_kernel_where_much_is_read(threads, monkeypatch, learns, rows, steps, taken):
    monkeypatch.undo()
    threads(2)
    layer, x, memory, _ = case("lstm", (rows, steps, 5, 16), torch.float32)
    with torch.set_grad_enabled(learns):
        given = CellInputs.of(layer, x, memory)
        assert recurrences.is_faster("lstm", given, is_ragged=False) == taken
    assert recurrences.is_faster("lstm", given, is_ragged=True)


def read_once(kind, dtype):
    layer, x, memory, _ = case(kind, (9, 8, 5, 32), dtype)
    return layer(x, memory)[0]


def test_without_a_compiler_all_is_read_as_before_and_the_reason_is_kept(monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setattr(time_loop, "REASONS", {})
    time_loop.compiled.cache_clear()
    one = case("gru", (3, 5, 4, 17))
    assert not is_kernels(one[0](*one[1:3])[0])
    assert_close(results(*one), readably(*one), 1e-12)
    assert time_loop.REASONS == {"torch.float64": "no C compiler: no-such-compiler not found"}
    time_loop.compiled.cache_clear()


def test_a_compiler_that_fails_is_no_failure_of_ours(monkeypatch):
    def fail(text):
        raise c_compiler.NoCompiler("cc ended with 1: out of disk")

    monkeypatch.setattr(time_loop, "load", fail)
    monkeypatch.setattr(time_loop, "REASONS", {})
    time_loop.compiled.cache_clear()
    one = case("rnn_tanh", (3, 5, 4, 17))
    assert_close(results(*one), readably(*one), 1e-12)
    assert time_loop.REASONS == {"torch.float64": "cc ended with 1: out of disk"}


class OtherEquations(LSTM):
    """An LSTM whose output gate is open."""

    def step(self, from_x, memory):
        renewed, inner = super().step(from_x, memory)
        return type(renewed)(hidden=renewed.cell.tanh(), cell=renewed.cell), inner


def test_a_subclass_with_equations_of_its_own_is_not_read_by_the_kernel():
    layer, x = OtherEquations(4, 17).double(), drawn(3, 9, 4)
    assert not is_kernels(layer(x)[0])
    assert is_kernels(type("Same", (LSTM,), {})(4, 17).double()(x)[0])
