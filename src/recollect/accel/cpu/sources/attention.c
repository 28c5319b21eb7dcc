/* Attention of each row's newest step to all its steps: c = softmax(scale q K) V. vectors.c precedes this text.

   Rows of a batch are of different age. torch's kernels read every row to the end of the longest and need a mask; here each
   row is read to its own end, once, and the new key and value are written where they belong. */

#include <math.h>

#define BLOCK 4 /* vectors of a value that are summed side by side */

typedef struct {
  int64_t rows, slots, kv_heads, group, width, threads; /* `group` heads share a key and a value */
  const int64_t *lengths;                               /* (B,) steps before the newest */
  const value *q, *key, *new_value;                     /* (B, kv_heads * group, H), and twice (B, kv_heads, H) */
  value *keys, *values;                                 /* (B, S, kv_heads, H) */
  value *out;                                           /* (B, kv_heads * group, H) */
  real *weights;                                        /* (threads, S + LANES) */
  double scale;
} Call;

INLINE int fewer(int64_t left) { return left < LANES ? (int)left : LANES; }

INLINE real sum_of(vec v) {
  real parts[LANES], sum = 0;
  store_real(parts, v);
  for (int i = 0; i < LANES; i += 4) sum += (parts[i] + parts[i + 1]) + (parts[i + 2] + parts[i + 3]);
  return sum;
}

/* Write q k for `count` keys: BLOCK keys side by side, so that none waits for another's sum. */
static void score(const value *q, const value *keys, int64_t count, int64_t stride, int64_t width, real scale, real *out) {
  for (int64_t s = 0; s < count; s += BLOCK) {
    const int64_t some = count - s < BLOCK ? count - s : BLOCK;
    vec sums[BLOCK] = {{0}};
    for (int64_t j = 0; j < width; j += LANES) {
      const int step = fewer(width - j);
      const vec part = load(q + j, step);
      if (some == BLOCK && step == LANES)
        for (int i = 0; i < BLOCK; i++) sums[i] += part * load(keys + (s + i) * stride + j, LANES);
      else
        for (int i = 0; i < some; i++) sums[i] += part * load(keys + (s + i) * stride + j, step);
    }
    for (int i = 0; i < some; i++) out[s + i] = scale * sum_of(sums[i]);
  }
}

/* Turn scores into weights that sum to 1. */
static void softmax(real *scores, int64_t count) {
  real most = scores[0];
  for (int64_t s = 1; s < count; s++) most = scores[s] > most ? scores[s] : most;
  vec sum = {0};
  for (int64_t s = 0; s < LANES; s++) scores[count + s] = -INFINITY; /* there is space for one vector more */
  for (int64_t s = 0; s < count; s += LANES) {
    vec power, x = load_real(scores + s) - most, e = exponential(x, sizeof(real) == 8 ? 700 : 87, &power);
    e = choose(x < all(sizeof(real) == 8 ? -700 : -87), all(0), e * power + power);
    store_real(scores + s, e);
    sum += e;
  }
  const real total = sum_of(sum);
  for (int64_t s = 0; s < count; s++) scores[s] /= total;
}

/* Write the sum of the first `count` values, weighted: BLOCK vectors of them at once, which are read in one pass. */
static void mix(const real *weights, int64_t count, const value *values, int64_t stride, int64_t width, value *out) {
  for (int64_t j = 0; j < width; j += BLOCK * LANES) {
    vec sums[BLOCK] = {{0}};
    const int64_t left = width - j;
    for (int64_t s = 0; s < count; s++) {
      const value *v = values + s * stride + j;
      if (left >= BLOCK * LANES)
        for (int i = 0; i < BLOCK; i++) sums[i] += weights[s] * load(v + i * LANES, LANES);
      else
        for (int i = 0; i * LANES < left; i++) sums[i] += weights[s] * load(v + i * LANES, fewer(left - i * LANES));
    }
    for (int i = 0; i < BLOCK && i * LANES < left; i++) store(out + j + i * LANES, sums[i], fewer(left - i * LANES));
  }
}

/* One row's heads that share a key: write the new key and value, then attend. */
static void attend(const Call *call, int64_t row, int64_t head, real *weights) {
  const int64_t H = call->width, stride = call->kv_heads * H, place = call->lengths[row], from = (row * call->kv_heads + head) * H;
  value *keys = call->keys + row * call->slots * stride + head * H, *values = call->values + (keys - call->keys);
  memcpy(keys + place * stride, call->key + from, H * sizeof(value));
  memcpy(values + place * stride, call->new_value + from, H * sizeof(value));
  for (int64_t g = 0; g < call->group; g++) {
    const int64_t at = (row * call->kv_heads + head) * call->group * H + g * H;
    score(call->q + at, keys, place + 1, stride, H, (real)call->scale, weights);
    softmax(weights, place + 1);
    mix(weights, place + 1, values, stride, H, call->out + at);
  }
}

/* Rows and heads are dealt to the threads in turn. */
void share(const Call *call, int64_t work, int64_t thread) {
  (void)work;
  real *weights = call->weights + thread * (call->slots + LANES);
  for (int64_t i = thread; i < call->rows * call->kv_heads; i += call->threads)
    attend(call, i / call->kv_heads, i % call->kv_heads, weights);
}

int64_t lanes(void) { return LANES; }
