"""Recorded operations of torch as calls of numpy, on the same memory.

A step at a time, tensors are small: what an operation costs is the way to it, and numpy's is several times shorter than
torch's. `lower` gives the calls that write an operation's result where torch had written it, or None where numpy has no
equal; those stay torch's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recollect.accel.cpu.decode.row_products import row_product

Call: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...]]
Array: TypeAlias = NDArray[Any]
Lowering: TypeAlias = Callable[..., "list[Call] | None"]

aten = torch.ops.aten


def lower(operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any], outs: list[Tensor]) -> list[Call] | None:
    """Give numpy's calls for an operation that torch did, with its results in `outs`."""
    how = LOWERINGS.get(operation)
    if how is None or any(value is not None and name not in HARMLESS for name, value in kwargs.items()):
        return None
    if any(t.dtype not in KINDS for t in (*outs, *(a for a in args if isinstance(a, Tensor)))):
        return None
    return how(array(outs[0]), *(array(a) for a in args))


KINDS = (torch.float32, torch.float64, torch.int64, torch.int32, torch.bool)  # that numpy has too


HARMLESS = ("dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking")  # `out` has them already


def array(value: Any) -> Any:
    """See a tensor as an array, also in lists; leave all else."""
    if isinstance(value, (list, tuple)):
        return [array(v) for v in value]
    return value.detach().numpy() if isinstance(value, Tensor) else value


# ---- element by element --------------------------------------------------------------------------


def _elementwise(ufunc: Any, *, swapped: bool = False) -> Lowering:
    def lowering(out: Array, *args: Any) -> list[Call] | None:
        kinds = {a.dtype for a in args if isinstance(a, np.ndarray)}
        is_plain = kinds == {out.dtype} or (out.dtype == bool and len(kinds) == 1)
        if not is_plain or len(args) != ufunc.nin:  # torch promotes otherwise than numpy, or scales one of them
            return None
        return [(ufunc, (*(reversed(args) if swapped else args), out))]

    return lowering


def _sigmoid(out: Array, x: Array) -> list[Call]:
    """σ(x) = (tanh(x / 2) + 1) / 2: an exponential of its own could overflow."""
    half = out.dtype.type(0.5)
    return [
        (np.multiply, (x, half, out)),
        (np.tanh, (out, out)),
        (np.multiply, (out, half, out)),
        (np.add, (out, half, out)),
    ]


def _relu(out: Array, x: Array) -> list[Call]:
    return [(_largest, (x, out.dtype.type(0), out))]


def _largest(x: Array, y: Any, out: Array) -> None:
    np.maximum(x, y, out=out)  # numpy wants it by name


def _square(out: Array, x: Array, exponent: Any) -> list[Call] | None:
    return [(np.multiply, (x, x, out))] if exponent == 2 and x.dtype == out.dtype else None


# ---- products ------------------------------------------------------------------------------------


class Packed:
    """A weight (H, D) laid out for oneDNN, which must be seen to be the weight still: some write to it without a trace.

    `renew` compares every value. `is_current` looks at the version and the first few values, which an optimiser's step
    changes with all the others: enough between two steps of a generation.
    """

    def __init__(self, weight: Tensor) -> None:
        self.weight, self.kept = weight, weight.clone()
        self._now, self._then = (array(t.flatten()[:8]) for t in (weight, self.kept))
        self._lay_out()

    def _lay_out(self) -> None:
        self.version = self.weight._version
        self.laid_out = torch.ops.mkldnn._reorder_linear_weight(self.kept, USUAL_ROWS)

    def is_current(self) -> bool:
        """Whether nothing seems to have been written."""
        return self.weight._version == self.version and bool((self._now == self._then).all())

    def renew(self) -> None:
        """Lay the weight out again if it is another."""
        if not torch.equal(self.weight, self.kept):
            self.kept.copy_(self.weight)
            self._lay_out()
        self.version = self.weight._version


USUAL_ROWS = 32
LARGE = 1 << 22  # elements of which no more copies are worth their memory
_PACKED: WeakValueDictionary[Any, Packed] = WeakValueDictionary()  # by place: it lives as long as what lies there


def packed(weight: Tensor) -> Packed:
    """Give a weight's one packed form."""
    key = weight.data_ptr(), weight.shape
    found = _PACKED.get(key)
    if found is None:
        found = _PACKED[key] = Packed(weight)
    return found


def product(
    out: Tensor, x: Tensor, y: Tensor, bias: Tensor | None, is_weight: bool, in_c: bool = False
) -> list[Call] | None:
    """Give the calls for x y + b. One row: numpy or C, bound by reading y. More: oneDNN, with weights laid out for it.

    All have threads of their own, which must not meet in one step: they would wait for each other.
    """
    if len(x) == 1 and x.is_contiguous() and out.is_contiguous():
        calls = [_one_row(out, x, y, in_c)]
        return calls if bias is None else [*calls, (np.add, (array(out), array(bias), array(out)))]
    is_ready = x.dtype == torch.float32 and x.is_contiguous() and y.t().is_contiguous()
    if len(x) == 1 or not is_ready or not torch.backends.mkldnn.is_available():
        return None
    is_inside = bias is not None and bias.dim() == 1
    inside = bias if is_inside else None
    if is_weight and y.numel() <= LARGE:
        calls = [(_multiply_packed, (out, x, packed(y.t()), inside))]
    else:
        calls = [(_multiply, (out, x, y.t(), inside))]
    return calls if bias is None or is_inside else [*calls, (np.add, (array(out), array(bias), array(out)))]


def _one_row(out: Tensor, x: Tensor, y: Tensor, in_c: bool) -> Call:
    found = row_product(out, x, y) if in_c else None
    if found is not None:
        return found, ()
    factors = (array(y).T, array(x)[0]) if y.stride(0) == 1 else (array(x)[0], array(y))
    return np.dot, (*factors, array(out)[0])


def _multiply(out: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    out.copy_(torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], ""))


def _multiply_packed(out: Tensor, x: Tensor, weight: Packed, bias: Tensor | None) -> None:
    _multiply(out, x, weight.laid_out, bias)


def _bmm(out: Array, x: Array, y: Array) -> list[Call]:
    return [(np.matmul, (x, y, out))]


# ---- along an axis -------------------------------------------------------------------------------


def _sum(out: Array, x: Array, axes: Any, keep: bool = False) -> list[Call] | None:
    if x.dtype != out.dtype or not axes:
        return None
    return [(np.add.reduce, (x, tuple(axes), None, out, keep))]


def _mean(out: Array, x: Array, axes: Any, keep: bool = False) -> list[Call] | None:
    total = _sum(out, x, axes, keep)
    count = int(np.prod([x.shape[axis] for axis in axes])) if total else 1
    return total and [*total, (np.multiply, (out, out.dtype.type(1 / count), out))]


def _any(out: Array, x: Array, axis: int, keep: bool = False) -> list[Call]:
    return [(np.logical_or.reduce, (x, axis, None, out, keep))]


def _layer_norm(out: Array, x: Array, shape: Any, weight: Any, bias: Any, eps: float) -> list[Call] | None:
    """(x − mean) / √(variance + eps) · w + b; mean and 1/√… , which torch gives too, are for its backward alone."""
    if len(shape) != 1:
        return None
    share, wide = out.dtype.type(1 / shape[0]), np.empty_like(out)
    narrow = np.empty((*out.shape[:-1], 1), out.dtype)
    calls: list[Call] = [
        (np.add.reduce, (x, -1, None, narrow, True)),
        (np.multiply, (narrow, share, narrow)),
        (np.subtract, (x, narrow, out)),
        (np.multiply, (out, out, wide)),
        (np.add.reduce, (wide, -1, None, narrow, True)),
        (np.multiply, (narrow, share, narrow)),
        (np.add, (narrow, out.dtype.type(eps), narrow)),
        (np.sqrt, (narrow, narrow)),
        (np.divide, (out, narrow, out)),
    ]
    calls += [] if weight is None else [(np.multiply, (out, weight, out))]
    return calls if bias is None else [*calls, (np.add, (out, bias, out))]


def _softmax(out: Array, x: Array, axis: int, widen: bool) -> list[Call] | None:
    if widen:
        return None
    most = np.empty_like(x.max(axis, keepdims=True))
    return [
        (np.maximum.reduce, (x, axis, None, most, True)),
        (np.subtract, (x, most, out)),
        (np.exp, (out, out)),
        (np.add.reduce, (out, axis, None, most, True)),
        (np.divide, (out, most, out)),
    ]


# ---- moving --------------------------------------------------------------------------------------


def _copy(out: Array, x: Array) -> list[Call]:
    return [(np.copyto, (out, x, "unsafe"))]


def _join(out: Array, parts: list[Array], axis: int = 0) -> list[Call] | None:
    if any(part.ndim != out.ndim or part.dtype != out.dtype for part in parts):  # torch lets (0,) join anything
        return None
    return [(np.concatenate, (parts, axis, out))]


def _stack(out: Array, parts: list[Array], axis: int = 0) -> list[Call]:
    axis = axis % out.ndim
    return [(np.concatenate, ([np.expand_dims(part, axis) for part in parts], axis, out))]


def _embedding(out: Array, table: Array, ids: Array, *_: Any) -> list[Call]:
    return [
        (np.take, (table, ids, 0, out, "clip"))
    ]  # "raise" would go through a copy; ids are checked where they enter


def _masked_fill(out: Array, x: Array, mask: Array, value: Any) -> list[Call]:
    return [*_copy(out, x), (np.copyto, (out, out.dtype.type(value), "same_kind", mask))]


def _where(out: Array, mask: Array, yes: Array, no: Array) -> list[Call]:
    return [*_copy(out, no), (np.copyto, (out, yes, "unsafe", mask))]


def _put(out: Array, target: Array, places: list[Any], values: Array, accumulate: bool = False) -> list[Call] | None:
    index = tuple(slice(None) if place is None else place for place in places)
    return None if accumulate else [(_assign, (target, index, values))]


def _assign(target: Array, index: tuple[Any, ...], values: Array) -> None:
    target[index] = values


LOWERINGS: dict[Any, Lowering] = {
    aten.add.Tensor: _elementwise(np.add),
    aten.sub.Tensor: _elementwise(np.subtract),
    aten.mul.Tensor: _elementwise(np.multiply),
    aten.div.Tensor: _elementwise(np.divide),
    aten.rsub.Scalar: _elementwise(np.subtract, swapped=True),
    aten.neg.default: _elementwise(np.negative),
    aten.exp.default: _elementwise(np.exp),
    aten.tanh.default: _elementwise(np.tanh),
    aten.sqrt.default: _elementwise(np.sqrt),
    aten.reciprocal.default: _elementwise(np.reciprocal),
    aten.sin.default: _elementwise(np.sin),
    aten.cos.default: _elementwise(np.cos),
    aten.bitwise_not.default: _elementwise(np.invert),
    aten.bitwise_and.Tensor: _elementwise(np.bitwise_and),
    aten.bitwise_or.Tensor: _elementwise(np.bitwise_or),
    **{
        getattr(getattr(aten, name), kind): _elementwise(ufunc)
        for name, ufunc in {
            "ge": np.greater_equal,
            "gt": np.greater,
            "le": np.less_equal,
            "lt": np.less,
            "eq": np.equal,
            "ne": np.not_equal,
        }.items()
        for kind in ("Scalar", "Tensor")
    },
    aten.sigmoid.default: _sigmoid,
    aten.relu.default: _relu,
    aten.pow.Tensor_Scalar: _square,
    aten.bmm.default: _bmm,
    aten.sum.dim_IntList: _sum,
    aten.mean.dim: _mean,
    aten.any.dim: _any,
    aten._softmax.default: _softmax,
    aten.native_layer_norm.default: _layer_norm,
    aten.clone.default: _copy,
    aten._to_copy.default: _copy,
    aten.cat.default: _join,
    aten.stack.default: _stack,
    aten.embedding.default: _embedding,
    aten.masked_fill.Scalar: _masked_fill,
    aten.where.self: _where,
    aten.index_put_.default: _put,
}
