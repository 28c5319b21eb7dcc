"""Operations along axes, in C: sums, norms, softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

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


def _reduce(
    source: CSource, out: Tensor, x: Tensor, axes: Sequence[int], first: str, update: str, mark: str = ""
) -> None:
    """Emit a reduction over axes: o = update(o, x), from `first`. The inner loop follows the memory order of x."""
    gone = sorted(axis % x.dim() for axis in axes)
    wide = out
    for axis in gone if out.dim() < x.dim() else []:
        wide = wide.unsqueeze(axis)
    steps = [0 if axis in gone else step for axis, step in enumerate(wide.stride())]
    elementwise(source, first, out)
    loops = merged(x.shape, x.stride(), steps)
    if not loops or loops[-1][1][1]:
        source.call(nest(loops, f"o[{at(loops, 1)}] = {_updated(update, f'o[{at(loops, 1)}]', loops)};"), out, x)
        return
    size, kind, outer = loops[-1][0], type_of(out), f"o[{at(loops[:-1], 1)}]"
    d = len(loops) - 1
    pragma = f'_Pragma("omp simd reduction({mark}:s)") ' if mark else ""
    loop = f"{pragma}for (long i{d} = 0; i{d} < {size}; i{d}++) s = {_updated(update, 's', loops)};"
    source.call(nest(loops[:-1], f"{kind} s = {outer}; {loop} {outer} = s;"), out, x)


def _updated(update: str, total: str, loops: Sequence[Axis]) -> str:
    return update.replace("$o", total).replace("$x", f"a0[{at(loops, 0)}]")


def total(source: CSource, out: Tensor, x: Tensor, axes: Sequence[int] | None, keep: bool = False) -> None:
    """Emit a sum."""
    _reduce(source, out, x, axes or range(x.dim()), "0", "$o + $x", "+")


def mean(source: CSource, out: Tensor, x: Tensor, axes: Sequence[int] | None, keep: bool = False) -> None:
    """Emit a mean."""
    total(source, out, x, axes, keep)
    count = math.prod(x.shape[axis] for axis in axes or range(x.dim()))
    elementwise(source, f"x0 / {count}", out, out)


def any_of(source: CSource, out: Tensor, x: Tensor, axis: int, keep: bool = False) -> None:
    """Emit whether any is not 0."""
    _reduce(source, out, x, [axis], "0", "$o | ($x != 0)", "|")


def largest(source: CSource, out: Tensor, x: Tensor, axes: Sequence[int] = (), keep: bool = False) -> None:
    """Emit the maximum; NaN is larger than all."""
    if not out.is_floating_point():
        raise Uncovered("the maximum of integers")
    _reduce(source, out, x, axes or range(x.dim()), "-INFINITY", "($x > $o || $x != $x) ? $x : $o")


def _rows(out: Tensor, x: Tensor, axis: int) -> tuple[list[Axis], int, int, int]:
    """Return the loops around an axis, its size, and its strides in the result and in x."""
    axis = axis % x.dim()
    others = [d for d in range(x.dim()) if d != axis]
    loops = merged(*([t[d] for d in others] for t in (x.shape, out.stride(), x.stride())))
    return loops, x.shape[axis], out.stride(axis), x.stride(axis)


def softmax(source: CSource, out: Tensor, x: Tensor, axis: int, widen: bool) -> None:
    """Emit a softmax, the maximum subtracted so that e^x stays finite; a row of nothing but −∞ is NaN, as torch's."""
    if widen:
        raise Uncovered("a softmax with another dtype")
    loops, size, so, sx = _rows(out, x, axis)
    kind, letter, each = type_of(out), letter_of(out), f"for (long j = 0; j < {size}; j++)"
    body = f"""{kind} *y = o + {at(loops, 0)}; const {kind} *x = a0 + {at(loops, 1)};
    {kind} most = -INFINITY, sum = 0;
    _Pragma("omp simd reduction(max:most)") {each} most = x[j * {sx}] > most ? x[j * {sx}] : most;
    _Pragma("omp simd reduction(+:sum)") {each} {{
        {kind} e = exp_{letter}(x[j * {sx}] - most); y[j * {so}] = e; sum += e; }}
    {kind} share = 1 / sum;
    _Pragma("omp simd") {each} y[j * {so}] *= share;"""
    source.call(nest(loops, body), out, x)


def layer_norm(
    source: CSource,
    out: Tensor,
    x: Tensor,
    shape: Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> None:
    """Emit (x − mean) / √(variance + eps) · w + b."""
    if len(shape) != 1:
        raise Uncovered("a norm over several axes")
    loops, size, so, sx = _rows(out, x, -1)
    kind, root = type_of(out), "sqrtf" if letter_of(out) == "f" else "sqrt"
    read = [t for t in (weight, bias) if t is not None]
    w = "" if weight is None else f" * a1[j * {weight.stride(0)}]"
    b = "" if bias is None else f" + a{len(read)}[j * {bias.stride(0)}]"
    each = f"for (long j = 0; j < {size}; j++)"
    body = f"""{kind} *y = o + {at(loops, 0)}; const {kind} *x = a0 + {at(loops, 1)}; {kind} mean = 0, variance = 0;
    _Pragma("omp simd reduction(+:mean)") {each} mean += x[j * {sx}];
    mean /= {size};
    _Pragma("omp simd reduction(+:variance)") {each} {{ {kind} d = x[j * {sx}] - mean; variance += d * d; }}
    {kind} scale = 1 / {root}(variance / {size} + {constant(eps, kind)});
    _Pragma("omp simd") {each} y[j * {so}] = (x[j * {sx}] - mean) * scale{w}{b};"""
    source.call(nest(loops, body), out, x, *read)


def argmax(source: CSource, out: Tensor, x: Tensor, axis: int | None = None, keep: bool = False) -> None:
    """Emit the index of the first maximum; NaN is larger than all."""
    if axis is None:
        raise Uncovered("the maximum over all axes")
    wide = out if keep else out.unsqueeze(axis)
    loops, size, _, sx = _rows(wide, x, axis)
    body = f"""const {type_of(x)} *x = a0 + {at(loops, 1)}; long best = 0;
    for (long j = 1; j < {size}; j++) {{ {type_of(x)} v = x[j * {sx}], b = x[best * {sx}];
        if (v > b || (v != v && b == b)) best = j; }}
    o[{at(loops, 0)}] = best;"""
    source.call(nest(loops, body), out, x)
