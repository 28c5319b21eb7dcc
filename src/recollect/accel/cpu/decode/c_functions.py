"""Functions in C that compilers can vectorise: e^x and what follows from it.

libm's are called for one number at a time. NaN and ±∞ are handled by all of these, so compiler flags must neither
assume that there are none nor reorder sums; sums that may be reordered have a pragma.
"""

from __future__ import annotations

from string import Template

from recollect.accel.cpu.decode.c_threads import TEAM

_TEMPLATE = Template("""
static inline $T rest_$S($T x, $T *whole) { /* e^x = whole + rest, within limits; whole is a power of 2 */
    x = x < ($T)$low ? ($T)$low : x > ($T)$high ? ($T)$high : x;
    $T n = $rint(x * ($T)1.44269504088896340736);
    $T r = (x - n * ($T)$ln2) - n * ($T)$ln2_rest;
    $I k = ($I)n, half = k / 2;
    union { $I i; $T f; } one = { (half + $bias) << $bits }, two = { (k - half + $bias) << $bits };
    *whole = one.f * two.f;
    return r * ($series) * one.f * two.f;
}
static inline $T exp_$S($T x) { $T whole, rest = rest_$S(x, &whole); return whole + rest; }
static inline $T expm1_$S($T x) { $T whole, rest = rest_$S(x, &whole); return (whole - 1) + rest; }
static inline $T tanh_$S($T x) {
    $T y = 2 * (x < 0 ? -x : x), e = expm1_$S(y > 40 ? 40 : y), t = e / (e + 2);
    return x < 0 ? -t : t;
}
static inline $T dot_$S(const $T *x, const $T *y, long n) { /* four sums that do not wait for each other */
    typedef $T part __attribute__((vector_size(32), aligned(sizeof($T)), may_alias));
    enum { each = 32 / sizeof($T) };
    part s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
    long d = 0;
    for (; d + 4 * each <= n; d += 4 * each) {
        s0 += *(const part *)(x + d) * *(const part *)(y + d);
        s1 += *(const part *)(x + d + each) * *(const part *)(y + d + each);
        s2 += *(const part *)(x + d + 2 * each) * *(const part *)(y + d + 2 * each);
        s3 += *(const part *)(x + d + 3 * each) * *(const part *)(y + d + 3 * each);
    }
    for (; d + each <= n; d += each) s0 += *(const part *)(x + d) * *(const part *)(y + d);
    s0 = (s0 + s1) + (s2 + s3);
    $T sum = 0;
    for (int i = 0; i < each; i++) sum += s0[i];
    for (; d < n; d++) sum += x[d] * y[d];
    return sum;
}
static inline $T sigmoid_$S($T x) { return 1 / (1 + exp_$S(-x)); }
static inline $T gelu_$S($T x) { return x * (($T)0.5 * (1 + erf_$S(x * ($T)0.70710678118654752440))); }
static inline $T gelu_tanh_$S($T x) {
    return ($T)0.5 * x * (1 + tanh_$S(($T)0.79788456080286535588 * (x + ($T)0.044715 * x * x * x)));
}
""")

_ERF = """
static inline float exp_f(float x);
static inline float erf_f(float x) { /* Abramowitz & Stegun 7.1.26, as torch does */
    float a = x < 0 ? -x : x, t = 1 / (1 + 0.3275911f * a);
    float s = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
    float y = 1 - s * exp_f(-a * a);
    return x < 0 ? -y : y;
}
static inline double erf_d(double x) { return erf(x); }
static inline int64_t place(int64_t i, int64_t size) { /* ids are checked where they enter; memory is safe anyway */
    i = i < 0 ? i + size : i;
    return i < 0 ? 0 : i >= size ? size - 1 : i;
}
"""


def _series(terms: int) -> str:
    """Return (e^r − 1) / r = 1 + r/2 (1 + r/3 (1 + …)), for |r| ≤ ln 2 / 2."""
    text = "1"
    for n in range(terms, 1, -1):
        text = f"1 + r * ($T){1 / n!r} * ({text})"
    return text


_FLOAT = {
    "T": "float",
    "S": "f",
    "I": "int32_t",
    "low": "-104.0",
    "high": "89.0",
    "ln2": "0.693359375",
    "ln2_rest": "-2.12194440054690583e-4",
    "rint": "rintf",
    "bias": "127",
    "bits": "23",
    "series": _series(7).replace("$T", "float"),
}
_DOUBLE = {
    "T": "double",
    "S": "d",
    "I": "int64_t",
    "low": "-746.0",
    "high": "710.0",
    "ln2": "6.93147180369123816490e-01",
    "ln2_rest": "1.90821492927058770002e-10",
    "rint": "rint",
    "bias": "1023",
    "bits": "52",
    "series": _series(14).replace("$T", "double"),
}
PRELUDE = (
    "#include <math.h>\n#include <stdint.h>\n" + TEAM + _ERF + "".join(map(_TEMPLATE.substitute, (_FLOAT, _DOUBLE)))
)
