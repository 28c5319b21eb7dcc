"""One row times a matrix in C, by threads that nobody waits for (c_threads.py).

Each result is a product of its own, as in a compiled step: who does it, and in how many parts, changes no bit.
"""

from __future__ import annotations

from string import Template

from recollect.accel.cpu.decode.c_threads import PIECE

_TEMPLATE = Template("""
static void some_rows_$S(char *const *p, long begin, long end) {
    const $T *w = (void *)p[0], *x = (void *)p[1];
    $T *z = (void *)p[2];
    const long depth = (intptr_t)p[3];
    for (long h = begin; h < end; h++) z[h] = dot_$S(x, w + h * depth, depth);
}
void multiply_$S($T *w, $T *x, $T *z, int64_t rows, int64_t depth, int threads) { /* z (H) = W (H, D) x (D) */
    char *const given[] = {(char *)w, (char *)x, (char *)z, (char *)(intptr_t)depth};
    team *t = take(threads);
    share(t, some_rows_$S, given, rows, $PIECE / (depth * (long)sizeof($T)) + 1);
    leave(t);
}
""")
ROWS = "".join(_TEMPLATE.substitute(T=kind, S=kind[0], PIECE=PIECE) for kind in ("float", "double"))
