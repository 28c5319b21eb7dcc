"""Matrix products in C: those of few rows are bound by reading the matrix, once and in the order of its storage.

From `MANY_ROWS` rows on they are bound by arithmetic: the rows lie side by side in vectors, and each element of the
matrix is multiplied with all of them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from recollect.accel.cpu.decode.c_source import CSource, Share, type_of
from recollect.accel.cpu.decode.c_threads import CHUNK

COLUMNS = 64  # of a matrix stored by rows, summed side by side
SHARED = 1 << 14  # elements from which on threads divide the work
ROWS = 4  # of x multiplied with one row of a matrix side by side: two sums each, in registers
MANY_ROWS = ROWS + 1  # from which on rows lie in vectors
TILE = 12  # columns of the result computed at once by rows in vectors: 12 or 24 sums in registers


def product(source: CSource, out: Tensor, x: Tensor, y: Tensor, bias: Tensor | None = None) -> None:
    """Emit x (M, D) y (D, H) + b."""
    wide = None if bias is None else bias.expand(out.shape)[None]
    _product(source, out[None], x[None], y[None], wide)


def batched(source: CSource, out: Tensor, x: Tensor, y: Tensor) -> None:
    """Emit x (N, M, D) y (N, D, H)."""
    _product(source, out, x, y, None)


def _product(source: CSource, out: Tensor, x: Tensor, y: Tensor, bias: Tensor | None) -> None:
    kind, (many, rows, width) = type_of(out), out.shape
    if many == 1 and rows >= MANY_ROWS:
        _rows_in_vectors(source, out[0], x[0], y[0], None if bias is None else bias[0])
        return
    is_dots = y.stride(1) == 1 or y.stride(2) != 1
    by_matrix = many > 1  # else by columns, or by blocks of them
    size = many if by_matrix else width if is_dots else max(width // COLUMNS, 1)
    if rows > 1 and not by_matrix and x.stride(2) == y.stride(1) == 1:
        body = _rows_side_by_side(kind, out, x, y, bias)
    else:
        inner = (_dots if is_dots else _sums)(kind, x, y, f"z[h * {out.stride(2)}]", bias, not by_matrix)
        begin = "" if bias is None else f"const {kind} *b = a2 + m * {bias.stride(1)};"
        body = f"""for (long n = {"begin; n < end" if by_matrix else "0; n < 1"}; n++)
        for (long m = 0; m < {rows}; m++) {{
        {kind} *z = o + n * {out.stride(0)} + m * {out.stride(1)}; {begin}
        const {kind} *x = a0 + n * {x.stride(0)} + m * {x.stride(1)}, *y = a1 + n * {y.stride(0)};
        {inner} }}"""
    grain = max(CHUNK * size // (y.numel() * y.element_size() or 1), 1)
    share = Share(size, grain, is_worth_it=y.numel() >= SHARED)
    source.call(body, out, x, y, *([] if bias is None else [bias]), share=share)


def _rows_in_vectors(source: CSource, out: Tensor, x: Tensor, y: Tensor, bias: Tensor | None) -> None:
    """Emit x (M, D) y (D, H) + b for many rows: x is transposed, so that a vector holds one feature of many rows."""
    kind, (rows, depth), width = type_of(out), x.shape, out.shape[1]
    half = 32 // x.element_size()  # rows in the smallest vector
    padded = -(-rows // half) * half
    turned = torch.zeros(depth, padded, dtype=x.dtype)
    source.call(
        f"""for (long d = 0; d < {depth}; d++) for (long m = 0; m < {rows}; m++)
        o[d * {padded} + m] = a0[m * {x.stride(0)} + d * {x.stride(1)}];""",
        *(turned, x),
    )
    tiles, rest = divmod(width, TILE)
    body = f"""for (long i = begin; i < end; i++) {{ long h = i * {TILE};
    #ifdef __AVX512F__
    {_tiles(kind, out, y, bias, padded, (4 * half, 2 * half, half), rest)}
    #else
    {_tiles(kind, out, y, bias, padded, (half,), rest)}
    #endif
    }}"""
    grain = max(CHUNK // (TILE * depth * x.element_size() * rows or 1), 1)
    is_worth_it = y.numel() * rows >= 4 * SHARED
    read = [] if bias is None else [bias]
    source.call(body, out, turned, y, *read, share=Share(tiles + (rest > 0), grain, is_worth_it))


def _tiles(
    kind: str, out: Tensor, y: Tensor, bias: Tensor | None, padded: int, blocks: tuple[int, ...], rest: int
) -> str:
    """Return code for a tile of the result, in blocks of rows; the last tile has `rest` columns, if any."""
    parts = []
    first = 0
    while first < padded:
        block = next(size for size in blocks if first + size <= padded)
        whole = _tile(kind, out, y, bias, padded, first, block, TILE)
        if not rest:
            parts.append(whole)
        elif y.shape[1] < TILE:
            parts.append(_tile(kind, out, y, bias, padded, first, block, rest))
        else:
            last = _tile(kind, out, y, bias, padded, first, block, rest)
            parts.append(f"if (h + {TILE} <= {y.shape[1]}) {{ {whole} }} else {{ {last} }}")
        first += block
    return "\n".join(parts)


def _tile(
    kind: str, out: Tensor, y: Tensor, bias: Tensor | None, padded: int, first: int, block: int, columns: int
) -> str:
    """Return code for a block of rows and some columns; a block of more than 64 bytes takes two vectors a column."""
    depth = y.shape[0]
    rows = min(out.shape[0] - first, block)
    size = block * out.element_size()
    vectors = range(2 if size > 64 else 1)
    each = block // len(vectors)
    zeros = " ".join(f"part s{c}_{k} = {{0}};" for c in range(columns) for k in vectors)
    loads = " ".join(f"part x{k} = *(const part *)(a0 + d * {padded} + {first + k * each});" for k in vectors)
    adds = " ".join(
        f"{{ {kind} w = y[d * {y.stride(0)} + {c * y.stride(1)}]; "
        + " ".join(f"s{c}_{k} += x{k} * w;" for k in vectors)
        + " }"
        for c in range(columns)
    )
    stores = " ".join(f"*(part *)(sums + {c * block + k * each}) = s{c}_{k};" for c in range(columns) for k in vectors)
    b = "" if bias is None else f" + a2[(m + {first}) * {bias.stride(0)} + (h + c) * {bias.stride(1)}]"
    bits = f"vector_size({size // len(vectors)}), aligned(sizeof({kind})), may_alias"
    return f"""{{ typedef {kind} part __attribute__(({bits}));
    const {kind} *y = a1 + h * {y.stride(1)}; {zeros}
    for (long d = 0; d < {depth}; d++) {{ {loads} {adds} }}
    {kind} sums[{columns * block}]; {stores}
    for (long m = 0; m < {rows}; m++) for (long c = 0; c < {columns}; c++)
        o[(m + {first}) * {out.stride(0)} + (h + c) * {out.stride(1)}] = sums[c * {block} + m]{b}; }}"""


def _rows_side_by_side(kind: str, out: Tensor, x: Tensor, y: Tensor, bias: Tensor | None) -> str:
    """Return code for several rows of x at once: each row of the matrix is read once for at most `ROWS` of them."""
    _, rows, depth = x.shape
    parts = []
    for first in range(0, rows, ROWS):
        numbers = range(first, min(first + ROWS, rows))
        zeros = " ".join(f"part s{m} = {{0}}, t{m} = {{0}};" for m in numbers)
        adds = " ".join(
            f"const {kind} *x{m} = a0 + {m * x.stride(1)} + d;"
            f"s{m} += *(const part *)x{m} * v; t{m} += *(const part *)(x{m} + each) * w;"
            for m in numbers
        )
        parts.append(f"""{{ {zeros} long d = 0; for (; d + 2 * each <= {depth}; d += 2 * each) {{
        part v = *(const part *)(y + d), w = *(const part *)(y + d + each); {adds} }}""")
        for m in numbers:
            b = "" if bias is None else f" + a2[{m * bias.stride(1)} + h * {bias.stride(2)}]"
            parts.append(f"""{{ s{m} += t{m}; {kind} sum = 0; for (int k = 0; k < each; k++) sum += s{m}[k];
            for (long e = d; e < {depth}; e++) sum += a0[{m * x.stride(1)} + e] * y[e];
            o[{m * out.stride(1)} + h * {out.stride(2)}] = sum{b}; }}""")
        parts.append("}")
    return f"""typedef {kind} part __attribute__((vector_size(32), aligned(sizeof({kind})), may_alias));
    enum {{ each = 32 / sizeof({kind}) }};
    for (long h = begin; h < end; h++) {{ const {kind} *y = a1 + h * {y.stride(2)};
    {chr(10).join(parts)} }}"""


def _added(bias: Tensor | None) -> str:
    return "" if bias is None else f" + b[h * {bias.stride(2)}]"


def _dots(kind: str, x: Tensor, y: Tensor, z: str, bias: Tensor | None, in_part: bool) -> str:
    """Return code for one dot product after the other. Several at once are slower: sequential reads are fastest."""
    _, depth, width = y.shape
    if x.stride(2) == 1 and y.stride(1) == 1:
        total = f"{kind} s = dot_{kind[0]}(x, w, {depth});"
    else:
        adds = f"s += x[d * {x.stride(2)}] * w[d * {y.stride(1)}];"
        total = f'{kind} s = 0; _Pragma("omp simd reduction(+:s)") for (long d = 0; d < {depth}; d++) {adds}'
    return f"""for (long h = {"begin; h < end" if in_part else f"0; h < {width}"}; h++) {{
        const {kind} *w = y + h * {y.stride(2)}; {total} {z} = s{_added(bias)}; }}"""


def _sums(kind: str, x: Tensor, y: Tensor, z: str, bias: Tensor | None, in_part: bool) -> str:
    """Return code for a block of columns at once, row of y by row; the last block has the remaining columns."""
    width, parts = y.shape[2], []
    whole, rest = divmod(width, COLUMNS)
    if whole:
        parts.append(f"for (long i = {'begin; i < end' if in_part else f'0; i < {whole}'}; i++) {{")
        parts.append(f"long g = i * {COLUMNS}; {_stretch(kind, x, y, z, bias, COLUMNS)} }}")
    if rest:
        is_last = f"if (end == {whole})" if in_part and whole else ""
        parts.append(f"{is_last} {{ long g = {width - rest}; {_stretch(kind, x, y, z, bias, rest)} }}")
    return "\n".join(parts)


def _stretch(kind: str, x: Tensor, y: Tensor, z: str, bias: Tensor | None, count: int) -> str:
    depth, step, each = y.shape[1], y.stride(1), f"for (long h = 0; h < {count}; h++)"
    four = " + ".join(f"x[(d + {i}) * {x.stride(2)}] * w[{i * step} + h]" for i in range(4))
    return f"""{{ {kind} s[{count}] = {{0}}; long d = 0; const {kind} *w = y + g;
        for (; d + 3 < {depth}; d += 4, w += {4 * step}) _Pragma("omp simd") {each} s[h] += {four};
        for (; d < {depth}; d++, w += {step}) _Pragma("omp simd") {each} s[h] += x[d * {x.stride(2)}] * w[h];
        for (long j = 0; j < {count}; j++) {{ long h = g + j; {z} = s[j]{_added(bias)}; }} }}"""
