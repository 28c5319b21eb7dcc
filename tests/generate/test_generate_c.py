"""Every operation that is written in C, against torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_generate_lowering import EXAMPLES, MASK, X, Y, draw
from torch import Tensor

from recollect.generate import compiling
from recollect.generate.c_operations import EMITS, emit
from recollect.generate.c_source import Source, Uncovered
from recollect.generate.compiling import Compiled
from recollect.generate.lowering import LOWERINGS

pytestmark = pytest.mark.usefixtures("compiler")
aten = torch.ops.aten

MORE: dict[Any, list[tuple[Any, ...]]] = {
    **{does: [(X,), (X * 100,)] for does in (aten.gelu.default, aten.elu.default, aten.silu.default, aten.abs.default)},
    aten.softplus.default: [(X,), (X * 100,)],
    aten.log.default: [(X.abs(),)],
    aten.maximum.default: [(X, Y), (X, Y.masked_fill(MASK, torch.nan))],
    aten.minimum.default: [(X, Y), (X.masked_fill(MASK, torch.nan), Y)],
    aten.clamp.default: [(X, -0.5, 0.5), (torch.arange(5), None, 3), (torch.arange(5), 2)],
    aten.remainder.Scalar: [(torch.arange(-5, 5), 3)],
    aten.mm.default: [(draw(n, 67), draw(9, 67).t()) for n in (1, 3)] + [(draw(1, 7), draw(7, 130)), (X, Y.t())],
    aten.addmm.default: [(draw(9), draw(1, 5), draw(9, 5).t()), (draw(1, 70), draw(1, 6), draw(6, 70))],
    aten.amax.default: [(X, [1]), (X.masked_fill(MASK, torch.nan), [0], True)],
    aten.argmax.default: [(X, 1), (X.round(), 0, True)],
    aten.gather.default: [(X, 1, torch.tensor([[0, 3], [1, 1], [2, 0]]))],
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


def test_all_that_numpy_does_can_be_compiled():
    assert set(LOWERINGS) <= set(EMITS)
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
    source, results = Source(), []  # one source for all: compiling each would take a minute
    for does, args, kwargs in cases(narrow):
        args = tuple(a.clone() if does is aten.index_put_.default and isinstance(a, Tensor) else a for a in args)
        given = does(*args, **kwargs)
        given = given[0] if isinstance(given, tuple) else given
        results.append((does, args, given, given.clone()))
        emit(source, does, args, kwargs, [given])
        given.fill_(1) if does is not aten.index_put_.default else None
    Compiled(source)()
    for does, args, found, want in results:
        assert torch.allclose(found.double(), want.double(), near, near / 10, equal_nan=True), (str(does), args)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("lies", ["rows", "columns", "batch"])
def test_large_products_are_shared_and_say_the_same_to_the_last_bit(threads, lies):
    x, y = draw(5, 1, 300).float(), draw(5, 401, 300).float().transpose(1, 2)
    y = y if lies != "columns" else y.contiguous()
    out, source = torch.zeros(5, 1, 401), Source()
    if lies == "batch":
        emit(source, aten.bmm.default, (x, y), {}, [out])
    else:
        emit(source, aten.mm.default, (x[0], y[0]), {}, [out[0]])
    step, said = Compiled(source), []
    for count in (1, threads):
        out.zero_()
        step._threads._alone = 0
        with compiling.cores(count):
            step()
        said.append(out.clone())
    assert torch.equal(*said)
    assert torch.allclose(
        said[0] if lies == "batch" else said[0][0], x @ y if lies == "batch" else x[0] @ y[0], 1e-4, 1e-4
    )


def test_what_is_not_covered_is_said():
    with pytest.raises(Uncovered, match="erfinv"):
        emit(Source(), aten.erfinv.default, (X,), {}, [X])
    with pytest.raises(Uncovered, match="power"):
        emit(Source(), aten.pow.Tensor_Scalar, (X, 0.3), {}, [X])
    with pytest.raises(Uncovered, match="bfloat16"):
        emit(Source(), aten.neg.default, (X.bfloat16(),), {}, [X.bfloat16()])
