/* Vectors, functions of them, and matrix products, in one dtype: FLOAT64, BFLOAT16 or neither is defined before this text.
   Vectors are the compiler's own, so that any processor will do. */

#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#define BYTES 64
#elif defined(__AVX__)
#define BYTES 32
#else
#define BYTES 16
#endif
#if defined(__AVX512F__) || defined(__aarch64__)
#define MOST_ROWS 8 /* of a tile, by 2 vectors: as many sums as 32 registers hold */
#else
#define MOST_ROWS 6 /* 16 registers */
#endif
#define INLINE static inline __attribute__((always_inline))

#ifdef FLOAT64
typedef double real;
typedef int64_t whole;
#define MANTISSA 52
#else
typedef float real;
typedef int32_t whole;
#define MANTISSA 23
#endif
#define LANES ((int)(BYTES / sizeof(real)))
#define WIDTH (2 * LANES) /* of a panel: the outputs that one tile computes */

typedef real vec __attribute__((vector_size(BYTES)));
typedef real loose __attribute__((vector_size(BYTES), aligned(sizeof(real)), may_alias)); /* anywhere in memory */
typedef whole bits __attribute__((vector_size(BYTES)));

/* ---- values in memory -------------------------------------------------------------------------------------------- */

INLINE vec load_real(const real *p) { return *(const loose *)p; }
INLINE void store_real(real *p, vec v) { *(loose *)p = v; }
INLINE vec all(real x) { return x - (vec){0}; }
INLINE vec choose(bits where, vec a, vec b) { return (vec)((where & (bits)a) | (~where & (bits)b)); }

#ifdef BFLOAT16
typedef uint16_t value;
typedef uint16_t stored __attribute__((vector_size(BYTES / 2)));
typedef uint16_t loose_stored __attribute__((vector_size(BYTES / 2), aligned(2), may_alias));
typedef uint32_t unsigned_bits __attribute__((vector_size(BYTES)));

INLINE vec widen(stored s) { return (vec)(__builtin_convertvector(s, unsigned_bits) << 16); }
INLINE stored narrow(vec v) { /* round to the nearest, ties to even; NaN stays NaN */
  unsigned_bits b = (unsigned_bits)v, rounded = b + 0x7fff + ((b >> 16) & 1);
  return __builtin_convertvector((unsigned_bits)choose(v == v, (vec)rounded, (vec)(b | 0x400000)) >> 16, stored);
}
#else
typedef real value;
typedef vec stored;
typedef loose loose_stored;
INLINE vec widen(stored s) { return s; }
INLINE stored narrow(vec v) { return v; }
#endif

INLINE vec load(const value *p, int count) {
  if (count == LANES) return widen(*(const loose_stored *)p);
  stored s = {0};
  for (int i = 0; i < count; i++) s[i] = p[i];
  return widen(s);
}
INLINE void store(value *p, vec v, int count) {
  stored s = narrow(v);
  if (count == LANES) *(loose_stored *)p = s;
  else for (int i = 0; i < count; i++) p[i] = s[i];
}

/* Operands: pairs of bf16 where the processor has dot products of them with a float sum, else reals. */
#if defined(BFLOAT16) && defined(__AVX512BF16__) && !defined(WITHOUT_PAIRS)
#include <immintrin.h>
#define PAIR 2
typedef value operand;
INLINE operand as_operand(value v) { return v; }
INLINE vec load_operand(const operand *p, int count) { return load(p, count); }
INLINE void store_operand(operand *p, vec v, int count) { store(p, v, count); }
INLINE vec multiply_add(vec sum, const operand *a, loose b) {
  int32_t pair;
  memcpy(&pair, a, sizeof pair);
  return (vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32(pair), (__m512bh)b);
}
#else
#define PAIR 1
typedef real operand;
INLINE operand as_operand(value v) { return widen((stored){v})[0]; }
INLINE vec load_operand(const operand *p, int count) { (void)count; return load_real(p); }
INLINE void store_operand(operand *p, vec v, int count) {
  vec kept = widen(narrow(v));
  if (count == LANES) store_real(p, kept);
  else for (int i = 0; i < count; i++) p[i] = kept[i];
}
INLINE vec multiply_add(vec sum, const operand *a, loose b) { return sum + *a * b; }
#endif

/* ---- functions --------------------------------------------------------------------------------------------------- */

/* e^x - 1 = 2^n (e^r - 1) + (2^n - 1) with x = n ln 2 + r, |r| <= ln 2 / 2, and e^r - 1 by Taylor's series: exact to
   one or two last places, near 0 too. Returns e^r - 1 and 2^n. */
INLINE vec exponential(vec x, real most, vec *power) {
#ifdef FLOAT64
  const real ln2_high = 0x1.62e42fee00000p-1, ln2_low = 0x1.a39ef35793c76p-33;
  static const real terms[] = {1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880,
                               1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5};
#else
  const real ln2_high = 0x1.63p-1f, ln2_low = -0x1.bd0106p-13f;
  static const real terms[] = {1.f / 5040, 1.f / 720, 1.f / 120, 1.f / 24, 1.f / 6, 0.5f};
#endif
  const real shift = (real)3 * ((whole)1 << (MANTISSA - 1)); /* adding it leaves the nearest whole number */
  x = choose(x > most, all(most), choose(x < -most, all(-most), x));
  vec shifted = x * (real)1.4426950408889634 + shift, n = shifted - shift;
  vec r = x - n * ln2_high - n * ln2_low, sum = all(terms[0]);
  for (unsigned i = 1; i < sizeof terms / sizeof *terms; i++) sum = sum * r + terms[i];
  *power = (vec)(((bits)shifted << MANTISSA) + (bits)all(1));
  return sum * r * r + r;
}
INLINE vec sigmoid(vec x) {
  vec power, e = exponential(-x, sizeof(real) == 8 ? 700 : 87, &power);
  return 1 / (1 + (e * power + power));
}
INLINE vec hyperbolic_tangent(vec x) { /* with e = e^2x - 1: e / (e + 2) */
  vec power, e = exponential(2 * x, 80, &power);
  e = e * power + (power - 1);
  return e / (e + 2);
}

/* ---- matrix products --------------------------------------------------------------------------------------------- */

static int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/* Add a (rows, size) times one panel (size, WIDTH) to out. `rows` is a constant where this is inlined: sums are registers. */
INLINE void tile(const int rows, const operand *a, int64_t stride, int64_t size, const operand *panel, real *out,
                 int64_t out_stride) {
  vec left[MOST_ROWS], right[MOST_ROWS];
  for (int i = 0; i < rows; i++) left[i] = right[i] = (vec){0};
  for (int64_t k = 0; k < size; k += PAIR, panel += PAIR * WIDTH) {
    loose first = *(const loose *)panel, second = *(const loose *)(panel + PAIR * LANES);
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
      left[i] = multiply_add(left[i], a + i * stride + k, first);
      right[i] = multiply_add(right[i], a + i * stride + k, second);
    }
  }
  for (int i = 0; i < rows; i++, out += out_stride) {
    store_real(out, load_real(out) + left[i]);
    store_real(out + LANES, load_real(out + LANES) + right[i]);
  }
}

static void any_tile(int rows, const operand *a, int64_t stride, int64_t size, const operand *panel, real *out,
                     int64_t out_stride) {
#define CASE(n) case n: tile(n, a, stride, size, panel, out, out_stride); break;
  switch (rows) {
    CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)
#if MOST_ROWS == 8
    CASE(7) CASE(8)
#endif
  }
}

/* Add a (rows, size) times W (size, outputs), packed in panels, to out. */
static void multiply(int64_t rows, const operand *a, int64_t stride, int64_t size, const operand *panels,
                     int64_t outputs, real *out, int64_t out_stride) {
  int64_t tiles = (rows + MOST_ROWS - 1) / MOST_ROWS, padded = round_up(size, PAIR);
  for (int64_t j = 0; j < outputs; j += WIDTH, panels += padded * WIDTH)
    for (int64_t i = 0; i < tiles; i++) {
      int64_t from = rows * i / tiles, to = rows * (i + 1) / tiles;
      any_tile((int)(to - from), a + from * stride, stride, size, panels, out + from * out_stride + j, out_stride);
    }
}
