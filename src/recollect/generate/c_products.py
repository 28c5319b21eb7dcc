"""Products of few rows with a matrix, in C: bound by reading the matrix, once and in the order in which it lies."""

from __future__ import annotations

from torch import Tensor

from recollect.generate.c_source import Source, type_of

COLUMNS = 64  # of a matrix that lies the other way, summed side by side
SHARED = 1 << 16  # elements from which on threads share the work
PARALLEL = '_Pragma("omp parallel for schedule(static) num_threads(threads) if(threads > 1)")\n'


def product(source: Source, out: Tensor, x: Tensor, y: Tensor, bias: Tensor | None = None) -> None:
    """Write x (M, D) y (D, H) + b."""
    wide = None if bias is None else bias.expand(out.shape)[None]
    _product(source, out[None], x[None], y[None], wide)


def batched(source: Source, out: Tensor, x: Tensor, y: Tensor) -> None:
    """Write x (N, M, D) y (N, D, H)."""
    _product(source, out, x, y, None)


def _product(source: Source, out: Tensor, x: Tensor, y: Tensor, bias: Tensor | None) -> None:
    kind, (many, rows, _) = type_of(out), out.shape
    is_large, by_matrix = y.numel() > SHARED, many > 1
    inner = _dots if y.stride(1) == 1 or y.stride(2) != 1 else _sums
    added = "" if bias is None else f" + b[h * {bias.stride(2)}]"
    begin = "" if bias is None else f"const {kind} *b = a2 + m * {bias.stride(1)};"
    body = f"""{PARALLEL if is_large and by_matrix else ""}for (long n = 0; n < {many}; n++)
    for (long m = 0; m < {rows}; m++) {{
    {kind} *z = o + n * {out.stride(0)} + m * {out.stride(1)}; {begin}
    const {kind} *x = a0 + n * {x.stride(0)} + m * {x.stride(1)}, *y = a1 + n * {y.stride(0)};
    {inner(kind, x, y, f"z[h * {out.stride(2)}]", added, is_large and not by_matrix)} }}"""
    source.call(body, out, x, y, *([] if bias is None else [bias]))


def _dots(kind: str, x: Tensor, y: Tensor, z: str, added: str, is_shared: bool) -> str:
    """Each result by itself. Several side by side would be slower: memory is quickest read from one place onwards."""
    _, depth, width = y.shape
    if x.stride(2) == 1 and y.stride(1) == 1:
        total = f"{kind} s = dot_{kind[0]}(x, w, {depth});"
    else:
        adds = f"s += x[d * {x.stride(2)}] * w[d * {y.stride(1)}];"
        total = f'{kind} s = 0; _Pragma("omp simd reduction(+:s)") for (long d = 0; d < {depth}; d++) {adds}'
    return f"""{PARALLEL if is_shared else ""}for (long h = 0; h < {width}; h++) {{
        const {kind} *w = y + h * {y.stride(2)}; {total} {z} = s{added}; }}"""


def _sums(kind: str, x: Tensor, y: Tensor, z: str, added: str, is_shared: bool) -> str:
    """All results of a stretch at once, row of y by row."""
    width, last = y.shape[2], y.shape[2] // COLUMNS * COLUMNS
    parts = []
    if last:
        parts.append(f"{PARALLEL if is_shared else ''}for (long g = 0; g < {last}; g += {COLUMNS})")
        parts.append(_stretch(kind, x, y, z, added, COLUMNS))
    if last < width:
        parts.append(f"for (long g = {last}; g < {width}; g += {width - last})")
        parts.append(_stretch(kind, x, y, z, added, width - last))
    return "\n".join(parts)


def _stretch(kind: str, x: Tensor, y: Tensor, z: str, added: str, count: int) -> str:
    depth, step, each = y.shape[1], y.stride(1), f"for (long h = 0; h < {count}; h++)"
    four = " + ".join(f"x[(d + {i}) * {x.stride(2)}] * w[{i * step} + h]" for i in range(4))
    return f"""{{ {kind} s[{count}] = {{0}}; long d = 0; const {kind} *w = y + g;
        for (; d + 3 < {depth}; d += 4, w += {4 * step}) _Pragma("omp simd") {each} s[h] += {four};
        for (; d < {depth}; d++, w += {step}) _Pragma("omp simd") {each} s[h] += x[d * {x.stride(2)}] * w[h];
        for (long i = 0; i < {count}; i++) {{ long h = g + i; {z} = s[i]{added}; }} }}"""
