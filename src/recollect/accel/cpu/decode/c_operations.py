"""torch's operations in C: each writes its result where torch wrote it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch._ops import OpOverload

from recollect.accel.cpu.decode.c_axes import any_of, argmax, largest, layer_norm, mean, softmax, total
from recollect.accel.cpu.decode.c_matmul import batched, product
from recollect.accel.cpu.decode.c_source import (
    Axis,
    CSource,
    Uncovered,
    at,
    constant,
    elementwise,
    letter_of,
    merged,
    nest,
    type_of,
)

aten = torch.ops.aten
Operand: TypeAlias = Tensor | float
Emit: TypeAlias = Callable[..., None]  # (source, result, *the operation's arguments)
HARMLESS = ("dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking")  # the result has them already


def emit(
    source: CSource, does: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], given: Sequence[Tensor]
) -> None:
    """Emit an operation that torch did."""
    how = EMITS.get(does)
    if how is None:
        raise Uncovered(str(does))
    named = {name: value for name, value in kwargs.items() if name not in HARMLESS}
    try:
        how(source, given[0], *args, **named)
    except TypeError as error:
        raise Uncovered(f"{does}: {error}") from error


def copy(source: CSource, out: Tensor, x: Tensor) -> None:
    """Emit a copy, converted to the result's type."""
    is_truth = out.dtype == torch.bool and x.dtype != torch.bool
    elementwise(source, "x0 != 0" if is_truth else "x0", out, x, kind=type_of(x))


# ---- element by element --------------------------------------------------------------------------


def _function(expression: str) -> Emit:
    """Return an emitter of a function of one argument; @ stands for its type's suffix, % for libm's."""

    def write(source: CSource, out: Tensor, x: Tensor) -> None:
        text = expression
        if "@" in text or "%" in text:
            letter = letter_of(out)
            text = text.replace("@", letter).replace("%", "f" if letter == "f" else "")
        elementwise(source, text, out, x)

    return write


def _two(sign: str, *, swapped: bool = False) -> Emit:
    """Return an emitter of x sign alpha · y, in the result's type."""

    def write(source: CSource, out: Tensor, x: Operand, y: Operand, alpha: float = 1) -> None:
        if out.dtype == torch.bool and sign not in "&|":
            raise Uncovered("arithmetic on booleans")
        kind, (x, y) = type_of(out), (y, x) if swapped else (x, y)
        scale = "" if alpha == 1 else f" * {constant(alpha, kind)}"
        _binary(source, lambda a, b: f"{a} {sign} ({b}{scale})", out, x, y, kind)

    return write


def _binary(
    source: CSource, expression: Callable[[str, str], str], out: Tensor, x: Operand, y: Operand, kind: str
) -> None:
    """Emit an expression of two arguments, of which one may be a number."""
    read = [t for t in (x, y) if isinstance(t, Tensor)]
    names = iter(("x0", "x1"))
    texts = [next(names) if isinstance(t, Tensor) else constant(t, kind) for t in (x, y)]
    elementwise(source, expression(*texts), out, *read, kind=kind)


def _compare(sign: str) -> Emit:
    def write(source: CSource, out: Tensor, x: Tensor, y: Operand) -> None:
        kind = type_of(torch.empty(0, dtype=torch.result_type(x, y)))
        _binary(source, lambda a, b: f"{a} {sign} {b}", out, x, y, kind)

    return write


def _extreme(sign: str) -> Emit:
    def write(source: CSource, out: Tensor, x: Tensor, y: Tensor) -> None:
        _binary(source, lambda a, b: f"({a} {sign} {b} || {a} != {a}) ? {a} : {b}", out, x, y, type_of(out))

    return write


def _not(source: CSource, out: Tensor, x: Tensor) -> None:
    elementwise(source, "!x0" if x.dtype == torch.bool else "~x0", out, x)


def _power(source: CSource, out: Tensor, x: Tensor, exponent: float) -> None:
    if exponent not in (2, 3):
        raise Uncovered(f"the power {exponent}")
    elementwise(source, " * ".join(["x0"] * int(exponent)), out, x)


def _remainder(source: CSource, out: Tensor, x: Tensor, by: float) -> None:
    if out.is_floating_point():
        raise Uncovered("a remainder of floats")
    n = constant(by, type_of(out))
    elementwise(source, f"((x0 % {n}) + {n}) % {n}", out, x)


def _clamp(source: CSource, out: Tensor, x: Tensor, least: float | None = None, most: float | None = None) -> None:
    kind, text = type_of(out), "x0"
    if most is not None:
        text = f"(x0 > {constant(most, kind)} ? {constant(most, kind)} : x0)"
    if least is not None:
        text = f"({text} < {constant(least, kind)} ? {constant(least, kind)} : {text})"
    elementwise(source, text, out, x)


def _gelu(source: CSource, out: Tensor, x: Tensor, approximate: str = "none") -> None:
    name = "gelu" if approximate == "none" else "gelu_tanh"
    elementwise(source, f"{name}_{letter_of(out)}(x0)", out, x)


def _elu(source: CSource, out: Tensor, x: Tensor, alpha: float = 1, scale: float = 1, inner: float = 1) -> None:
    a, s, i = (constant(float(v), type_of(out)) for v in (alpha, scale, inner))
    elementwise(source, f"x0 > 0 ? x0 * {s} : expm1_{letter_of(out)}(x0 * {i}) * {a} * {s}", out, x)


def _softplus(source: CSource, out: Tensor, x: Tensor, beta: float = 1, threshold: float = 20) -> None:
    letter, (b, t) = letter_of(out), (constant(float(v), type_of(out)) for v in (beta, threshold))
    log = "log1pf" if letter == "f" else "log1p"
    elementwise(source, f"x0 * {b} > {t} ? x0 : {log}(exp_{letter}(x0 * {b})) / {b}", out, x)


def _where(source: CSource, out: Tensor, mask: Tensor, yes: Tensor, no: Tensor) -> None:
    kind = type_of(out)
    elementwise(source, f"x0 ? ({kind})x1 : ({kind})x2", out, mask, yes, no, kind=kind)


def _masked_fill(source: CSource, out: Tensor, x: Tensor, mask: Tensor, value: float) -> None:
    elementwise(source, f"x1 ? {constant(value, type_of(out))} : x0", out, x, mask)


# ---- moving --------------------------------------------------------------------------------------


def _join(source: CSource, out: Tensor, parts: Sequence[Tensor], axis: int = 0) -> None:
    start = 0
    for part in parts:
        if part.dim() == out.dim():  # torch lets (0,) be concatenated with anything
            copy(source, out.narrow(axis, start, part.shape[axis]), part)
            start += part.shape[axis]


def _stack(source: CSource, out: Tensor, parts: Sequence[Tensor], axis: int = 0) -> None:
    for i, part in enumerate(parts):
        copy(source, out.select(axis, i), part)


def _looked_up(
    source: CSource,
    out: Tensor,
    table: Tensor,
    places: Sequence[tuple[Tensor, int]],
    steps: Sequence[int],
    shape: Sequence[int],
) -> None:
    """Emit o = table[…]: `steps` are the table's strides, `places` ids (of the result's shape) and their axes."""
    strides = [ids.expand(shape).stride() for ids, _ in places]
    loops = merged(shape, out.stride(), steps, *strides)
    where = [at(loops, 1), *_found(loops, table, places, 1)]
    text = f"o[{at(loops, 0)}] = a0[{' + '.join(where)}];"
    source.call(nest(loops, text), out, table, *(ids for ids, _ in places))


def _found(loops: Sequence[Axis], table: Tensor, places: Sequence[tuple[Tensor, int]], before: int) -> list[str]:
    return [
        f"place(a{i + before}[{at(loops, i + before + 1)}], {table.shape[axis]}) * {table.stride(axis)}"
        for i, (_, axis) in enumerate(places)
    ]


def _embedding(source: CSource, out: Tensor, table: Tensor, ids: Tensor, *_: object) -> None:
    steps = [*([0] * ids.dim()), table.stride(1)]
    _looked_up(source, out, table, [(ids.unsqueeze(-1), 0)], steps, out.shape)


def _gather(source: CSource, out: Tensor, x: Tensor, axis: int, ids: Tensor, sparse_grad: bool = False) -> None:
    axis = axis % x.dim()
    steps = [0 if d == axis else step for d, step in enumerate(x.stride())]
    _looked_up(source, out, x, [(ids, axis)], steps, out.shape)


def _index(source: CSource, out: Tensor, x: Tensor, places: Sequence[Tensor | None]) -> None:
    """Emit x[ids, …], the ids' axes first."""
    ids = [place for place in places if place is not None]
    if any(place is None for place in places[: len(ids)]):
        raise Uncovered("this form of index")
    rest = x.dim() - len(ids)
    wide = out.dim() - rest
    steps = [*([0] * wide), *x.stride()[len(ids) :]]
    features = (..., *([None] * rest))  # an index, so that no ids are copied
    found = [(i.expand(out.shape[:wide])[features], axis) for axis, i in enumerate(ids)]
    _looked_up(source, out, x, found, steps, out.shape)


def _scatter(source: CSource, out: Tensor, x: Tensor, axis: int, ids: Tensor, value: float) -> None:
    copy(source, out, x)
    axis = axis % x.dim()
    steps = [0 if d == axis else step for d, step in enumerate(out.stride())]
    loops = merged(ids.shape, steps, ids.stride(), by=1)
    where = f"place(a0[{at(loops, 1)}], {out.shape[axis]}) * {out.stride(axis)}"
    text = f"o[{at(loops, 0)} + {where}] = {constant(value, type_of(out))};"
    source.call(nest(loops, text), out, ids)


def _put(
    source: CSource,
    out: Tensor,
    target: Tensor,
    places: Sequence[Tensor | None],
    values: Tensor,
    accumulate: bool = False,
) -> None:
    """Emit target[ids, …] = values, the ids' axes first."""
    ids = [place for place in places if place is not None]
    is_later = any(place is None for place in places[: len(ids)])
    if accumulate or is_later or any(i.dtype == torch.bool for i in ids):
        raise Uncovered("this form of index_put_")
    wide = torch.broadcast_shapes(*(i.shape for i in ids))
    rest = target.shape[len(ids) :]
    shape = (*wide, *rest)
    strides = [i.expand(wide).stride() + (0,) * len(rest) for i in ids]
    steps = [*([0] * len(wide)), *target.stride()[len(ids) :]]
    loops = merged(shape, values.expand(shape).stride(), steps, *strides)
    found = _found(loops, target, [(i, axis) for axis, i in enumerate(ids)], 1)
    text = f"o[{' + '.join([at(loops, 1), *found])}] = a0[{at(loops, 0)}];"
    source.call(nest(loops, text), target, values, *ids)


EMITS: dict[OpOverload, Emit] = {
    aten.add.Tensor: _two("+"),
    aten.sub.Tensor: _two("-"),
    aten.mul.Tensor: _two("*"),
    aten.div.Tensor: _two("/"),
    aten.rsub.Scalar: _two("-", swapped=True),
    aten.neg.default: _function("-x0"),
    aten.exp.default: _function("exp_@(x0)"),
    aten.tanh.default: _function("tanh_@(x0)"),
    aten.sigmoid.default: _function("sigmoid_@(x0)"),
    aten.silu.default: _function("x0 * sigmoid_@(x0)"),
    aten.sqrt.default: _function("sqrt%(x0)"),
    aten.log.default: _function("log%(x0)"),
    aten.sin.default: _function("sin%(x0)"),
    aten.cos.default: _function("cos%(x0)"),
    aten.abs.default: _function("x0 < 0 ? -x0 : x0"),
    aten.relu.default: _function("x0 < 0 ? 0 : x0"),
    aten.reciprocal.default: _function("1 / x0"),
    aten.gelu.default: _gelu,
    aten.elu.default: _elu,
    aten.softplus.default: _softplus,
    aten.bitwise_not.default: _not,
    aten.bitwise_and.Tensor: _two("&"),
    aten.bitwise_or.Tensor: _two("|"),
    **{
        getattr(getattr(aten, name), kind): _compare(sign)
        for name, sign in {"ge": ">=", "gt": ">", "le": "<=", "lt": "<", "eq": "==", "ne": "!="}.items()
        for kind in ("Scalar", "Tensor")
    },
    aten.maximum.default: _extreme(">"),
    aten.minimum.default: _extreme("<"),
    aten.clamp.default: _clamp,
    aten.remainder.Scalar: _remainder,
    aten.pow.Tensor_Scalar: _power,
    aten.mm.default: product,
    aten.addmm.default: lambda source, out, bias, x, y: product(source, out, x, y, bias),
    aten.bmm.default: batched,
    aten.sum.dim_IntList: total,
    aten.mean.dim: mean,
    aten.any.dim: any_of,
    aten.amax.default: largest,
    aten.argmax.default: argmax,
    aten._softmax.default: softmax,
    aten.native_layer_norm.default: layer_norm,
    aten.clone.default: copy,
    aten._to_copy.default: copy,
    aten.cat.default: _join,
    aten.stack.default: _stack,
    aten.embedding.default: _embedding,
    aten.gather.default: _gather,
    aten.index.Tensor: _index,
    aten.scatter.value: _scatter,
    aten.masked_fill.Scalar: _masked_fill,
    aten.where.self: _where,
    aten.index_put_.default: _put,
}
