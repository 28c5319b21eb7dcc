"""Every operation that is written in C, against torch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from recollect.accel.cpu.decode import compilation as compiling
from recollect.accel.cpu.decode.c_operations import EMITS, emit
from recollect.accel.cpu.decode.c_source import CSource, Uncovered
from recollect.accel.cpu.decode.compilation import CompiledStep
from recollect.accel.model_survey import storage_of

pytestmark = pytest.mark.usefixtures("compiler")
aten = torch.ops.aten


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


X, Y, POSITIVE, MASK = draw(3, 4), draw(4, 4)[1:], draw(3, 4).abs() + 0.1, draw(3, 4) > 0
TWO = (aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor)
ORDERS = ("ge", "gt", "le", "lt", "eq", "ne")
COMPARED = [getattr(getattr(aten, name), kind) for name in ORDERS for kind in ("Scalar", "Tensor")]
EXAMPLES: dict[Any, list[tuple[Any, ...]]] = {
    **{does: [(X, Y), (X, Y[:1]), (X.t(), draw(1, 3))] for does in TWO},
    **{does: [(X, 0.1), (X.round(), 0)] if does._overloadname == "Scalar" else [(X, Y)] for does in COMPARED},
    **{does: [(X,), (X.t(),)] for does in (aten.neg.default, aten.exp.default, aten.tanh.default, aten.sin.default)},
    **{does: [(X,), (X * 100,)] for does in (aten.cos.default, aten.sigmoid.default, aten.relu.default)},
    **{does: [(POSITIVE,)] for does in (aten.sqrt.default, aten.reciprocal.default)},
    aten.rsub.Scalar: [(X, 1.0)],
    aten.bitwise_not.default: [(MASK,), (torch.arange(3),)],
    **{does: [(MASK, MASK.flip(0))] for does in (aten.bitwise_and.Tensor, aten.bitwise_or.Tensor)},
    aten.pow.Tensor_Scalar: [(X, 2)],
    aten.bmm.default: [(draw(2, 3, 4), draw(2, 5, 4).transpose(1, 2))],
    aten.sum.dim_IntList: [(X, [1]), (X, [0, -1], True)],
    aten.mean.dim: [(X, [1], True), (draw(2, 3, 4), [0, 2])],
    aten.any.dim: [(MASK, 1), (MASK, 0, True)],
    aten._softmax.default: [(X, 1, False), (X.masked_fill(MASK, -torch.inf), 0, False)],
    aten.native_layer_norm.default: [(X, [4], draw(4), draw(4), 1e-5), (draw(2, 3, 4), [4], None, None, 1e-3)],
    aten.clone.default: [(X,), (X.t(),)],
    aten._to_copy.default: [(X,)],
    aten.cat.default: [([X, Y], 1), ([X, Y],)],
    aten.stack.default: [([X, Y], -1), ([X, Y],)],
    aten.embedding.default: [(X, torch.tensor([[2, 0], [1, 1]]))],
    aten.masked_fill.Scalar: [(X, MASK, -torch.inf), (X, MASK[:1], 0)],
    aten.where.self: [(MASK, X, Y), (MASK[:, :1], X, Y[:1])],
    aten.index_put_.default: [(X.clone(), [torch.tensor([0, 2]), torch.tensor([1, 3])], draw(2))],
}
MORE: dict[Any, list[tuple[Any, ...]]] = {
    **{does: [(X,), (X * 100,)] for does in (aten.gelu.default, aten.elu.default, aten.silu.default, aten.abs.default)},
    aten.softplus.default: [(X,), (X * 100,)],
    aten.log.default: [(X.abs(),)],
    aten.maximum.default: [(X, Y), (X, Y.masked_fill(MASK, torch.nan))],
    aten.minimum.default: [(X, Y), (X.masked_fill(MASK, torch.nan), Y)],
    aten.clamp.default: [(X, -0.5, 0.5), (torch.arange(5), None, 3), (torch.arange(5), 2)],
    aten.remainder.Scalar: [(torch.arange(-5, 5), 3)],
    aten.mm.default: [(draw(n, d), draw(9, d).t()) for n, d in ((1, 67), (3, 67), (8, 13), (11, 13), (57, 5))]
    + [(draw(1, 7), draw(7, 130)), (X, Y.t()), (draw(3, 32).t(), draw(3, 31)), (draw(5, 3), draw(3, 24))],
    aten.addmm.default: [
        (draw(9), draw(1, 5), draw(9, 5).t()),
        (draw(1, 70), draw(1, 6), draw(6, 70)),
        (draw(9), draw(5, 12), draw(9, 12).t()),
        (draw(25), draw(24, 12), draw(25, 12).t()),
    ],
    aten.amax.default: [(X, [1]), (X.masked_fill(MASK, torch.nan), [0], True)],
    aten.argmax.default: [(X, 1), (X.round(), 0, True)],
    aten.gather.default: [(X, 1, torch.tensor([[0, 3], [1, 1], [2, 0]]))],
    aten.index.Tensor: [
        (X, [torch.tensor([[0], [2]]), torch.tensor([1, 3])]),
        (draw(3, 4, 5).transpose(1, 2), [torch.tensor([2, 0])]),
    ],
    aten.scatter.value: [(X, 1, torch.tensor([[1], [0], [3]]), 2.0)],
    aten.pow.Tensor_Scalar: [(X, 3)],
    aten.tanh.default: [(X * 1e-9,), (torch.tensor([torch.inf, -torch.inf, torch.nan, 800.0], dtype=torch.float64),)],
    aten.exp.default: [(torch.tensor([torch.inf, -torch.inf, torch.nan, 709.5, -740.0, 720.0], dtype=torch.float64),)],
    aten.sigmoid.default: [(torch.tensor([torch.inf, -torch.inf, torch.nan, -720.0], dtype=torch.float64),)],
    aten._softmax.default: [(torch.full((2, 3), -torch.inf), -1, False), (draw(3, 50, 2), 1, False)],
    aten.sum.dim_IntList: [(MASK, [1]), (draw(2, 3, 4).transpose(1, 2), [2]), (draw(2, 3, 4), [1])],
    aten.add.Tensor: [(torch.arange(4), 1), (X, torch.arange(4)), (X, 0.1)],
}
NAMED: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
    (aten.gelu.default, (X * 3,), {"approximate": "tanh"}),
    (aten.add.Tensor, (X, Y), {"alpha": 2}),
    (aten.sub.Tensor, (X, Y), {"alpha": 0.5}),
    (aten._to_copy.default, (X,), {"dtype": torch.float32}),
    (aten._to_copy.default, (X.round(),), {"dtype": torch.bool}),
    (aten._to_copy.default, (MASK,), {"dtype": torch.int64}),
]


def test_there_is_an_example_for_every_one():
    assert set(EMITS) == set(EXAMPLES) | set(MORE)


def narrowed(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(map(narrowed, value))
    return value.float() if isinstance(value, Tensor) and value.is_floating_point() else value


def cases(narrow: bool) -> list[tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    plain = [(does, args, {}) for does in EMITS for args in [*EXAMPLES.get(does, []), *MORE.get(does, [])]]
    return [(does, narrowed(args) if narrow else args, kwargs) for does, args, kwargs in plain + NAMED]


@pytest.mark.parametrize(("narrow", "near"), [(False, 1e-12), (True, 1e-5)], ids=["float64", "float32"])
def test_c_does_what_torch_does(narrow, near):
    source, results = CSource(), []  # one source for all: compiling each would take a minute
    for does, args, kwargs in cases(narrow):
        args = tuple(a.clone() if does is aten.index_put_.default and isinstance(a, Tensor) else a for a in args)
        given = does(*args, **kwargs)
        given = given[0] if isinstance(given, tuple) else given
        results.append((does, args, given, given.clone()))
        emit(source, does, args, kwargs, [given])
        given.fill_(1) if does is not aten.index_put_.default else None
    CompiledStep(source)()
    for does, args, found, want in results:
        assert torch.allclose(found.double(), want.double(), near, near / 10, equal_nan=True), (str(does), args)


# ---- threads -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shared_products() -> tuple[CSource, list[tuple[Tensor, Tensor]]]:
    """Return matmuls that threads divide, in one source, and their results beside the expected ones."""
    source, results = CSource(), []
    for rows, depth, width in [
        (1, 300, 401),
        (2, 77, 1000),
        (1, 2000, 64),
        (1, 130, 1),
        (1, 30, 70_000),
        (33, 70, 101),
    ]:
        x, y = draw(rows, depth).float(), draw(width, depth).float()
        for laid_out in (y.t(), y.t().contiguous()):
            out = torch.zeros(rows, width)
            emit(source, aten.mm.default, (x, laid_out), {}, [out])
            results.append((out, x @ laid_out))
    x, y, out = draw(5, 1, 300).float(), draw(5, 401, 300).float().transpose(1, 2), torch.zeros(5, 1, 401)
    emit(source, aten.bmm.default, (x, y), {}, [out])
    return source, [*results, (out, x @ y)]


def once(step: CompiledStep, outs: list[Tensor], threads: int) -> list[Tensor]:
    with number_of_threads(threads):
        return computed(step, outs)


@contextmanager
def number_of_threads(threads: int) -> Iterator[None]:
    """Let a step see a number of torch's threads; the patch is the process's, so only one thread may make it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiling.torch, "get_num_threads", lambda: threads)
        yield


def computed(step: CompiledStep, outs: list[Tensor]) -> list[Tensor]:
    for out in outs:
        out.zero_()
    step()
    return [out.clone() for out in outs]


def test_threads_share_large_products_and_say_the_same_to_the_last_bit(shared_products):
    source, results = shared_products
    assert "share(team" in source.text()
    step, outs = CompiledStep(source), [out for out, _ in results]
    want = once(step, outs, 1)
    for found, (_, right) in zip(want, results, strict=True):
        assert torch.allclose(found, right, 1e-4, 1e-3)
    for threads in (2, 3, 7, 2, 1, 100):
        for _ in range(20):
            assert all(map(torch.equal, once(step, outs, threads), want))


def test_of_two_that_want_the_threads_one_works_alone(shared_products):
    source, results = shared_products
    own = [[torch.zeros_like(out) for out, _ in results] for _ in range(3)]
    steps = [CompiledStep(moved(source, [out for out, _ in results], mine)) for mine in own]
    want = once(steps[0], own[0], 1)
    assert all(map(torch.any, want))

    def work(number: int) -> bool:
        return all(all(map(torch.equal, computed(steps[number], own[number]), want)) for _ in range(50))

    with number_of_threads(2), ThreadPoolExecutor(3) as pool:
        assert all(pool.map(work, range(3)))


def moved(source: CSource, outs: list[Tensor], elsewhere: list[Tensor]) -> CSource:
    """Return the source with other tensors in place of `outs`."""
    other, places = CSource(), dict(zip(map(storage_of, outs), elsewhere, strict=True))
    other.functions, other.calls = source.functions, source.calls
    other.held = {key: places.get(key, t) for key, t in source.held.items()}
    return other


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_works_alone(shared_products):
    source, results = shared_products
    step, outs = CompiledStep(source), [out for out, _ in results]
    want = once(step, outs, 2)
    child = os.fork()
    if child == 0:
        os._exit(0 if all(map(torch.equal, once(step, outs, 2), want)) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_what_is_not_covered_is_said():
    with pytest.raises(Uncovered, match="erfinv"):
        emit(CSource(), aten.erfinv.default, (X,), {}, [X])
    with pytest.raises(Uncovered, match="power"):
        emit(CSource(), aten.pow.Tensor_Scalar, (X, 0.3), {}, [X])
    with pytest.raises(Uncovered, match="bfloat16"):
        emit(CSource(), aten.neg.default, (X.bfloat16(),), {}, [X.bfloat16()])
