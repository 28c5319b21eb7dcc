"""Every operation that numpy does in torch's place, against torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from recollect.accel.cpu.decode.lowering import LOWERINGS, lower, packed, product
from recollect.accel.cpu.decode.recording import in_place_form

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


def test_there_is_an_example_for_every_one():
    assert set(EXAMPLES) == set(LOWERINGS)


@pytest.mark.parametrize("does", EXAMPLES, ids=str)
def test_numpy_does_what_torch_does(does):
    for args in EXAMPLES[does]:
        given = does(*args)
        given = given[0] if isinstance(given, tuple) else given
        want = given.clone()
        calls = lower(does, args, {}, [given])
        assert calls is not None
        given.fill_(7) if does is not aten.index_put_.default else None
        for call, arguments in calls:
            call(*arguments)
        assert torch.allclose(given.double(), want.double(), 1e-12, 1e-12, equal_nan=True)


def test_what_numpy_would_promote_otherwise_is_left_to_torch():
    whole = torch.arange(4)
    assert lower(aten.div.Tensor, (whole, whole + 1), {}, [whole / (whole + 1)]) is None
    assert lower(aten.add.Tensor, (X, Y), {"alpha": 2}, [X + 2 * Y]) is None
    assert lower(aten.mul.Tensor, (X.bfloat16(), Y.bfloat16()), {}, [X.bfloat16() * Y.bfloat16()]) is None


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bias", [None, draw(6), draw(1, 6)])
@pytest.mark.parametrize("part", [slice(None), slice(1, 4)])
def test_products(rows, dtype, bias, part):
    x, y = draw(rows, 5)[:, part].to(dtype).contiguous(), draw(6, 5).to(dtype)[:, part].t()
    bias = None if bias is None else bias.to(dtype)
    for is_weight in (False, True):
        out = torch.full((rows, 6), 7.0, dtype=dtype)
        calls = product(out, x, y, bias, is_weight)
        assert (calls is None) == (rows > 1 and (dtype == torch.float64 or part != slice(None)))
        for call, args in calls or []:
            call(*args)
        want = x @ y + (0 if bias is None else bias)
        assert calls is None or torch.allclose(out, want, 1e-5, 1e-6)


def test_a_packed_weight_is_one_and_becomes_what_the_weight_is():
    weight, x = torch.nn.Parameter(draw(6, 5).float()), draw(3, 5).float()
    first = packed(weight)
    assert packed(weight) is first
    weight.grad = torch.ones_like(weight)
    torch.optim.AdamW([weight], lr=0.1, fused=True).step()
    assert not first.is_current()
    first.reset_rows()
    assert first.is_current()
    with torch.no_grad():
        weight.data[5, 4] += 1  # neither a version nor a first value shows it
        first.reset_rows()
        found = torch.ops.mkldnn._linear_pointwise(x, first.laid_out, None, "none", [], "")
    assert torch.allclose(found, x @ weight.t(), 1e-5, 1e-5)


def test_torch_writes_in_place_where_it_can():
    form, names = in_place_form(aten.gelu.default)
    out = torch.zeros_like(X)
    form(X, **dict(zip(names, [out], strict=True)))
    assert torch.equal(out, torch.nn.functional.gelu(X))
    assert in_place_form(aten.view.default) is None
