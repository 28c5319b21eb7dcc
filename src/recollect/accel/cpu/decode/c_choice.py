"""The choice of ids from rows of logits, many in one call, in C: filters.py without Python between two ids.

A compiled step and this choice alternate until the requested number of ids is chosen, one of them is a stop id, or
nothing can be chosen; Python then raises the error (generation/filters.py). Threads divide the rows.
"""

from __future__ import annotations

from string import Template

_HEAD = """
typedef void work(void **p, team *t);
typedef struct {
    int64_t width, is_greedy, top_k, stops, prohibitions; /* top_k 0: all */
    double temperature, top_p, min_p;                     /* 1, 1 and 0: no filter */
    const int64_t *stop, *prohibited;
    void *kept; double *summed; int64_t *order; /* workspace of `width` for each row */
} choice;
typedef struct { /* of all rows at one step */
    const void *logits; const uint8_t *active; const double *uniform;
    int64_t stride, *said; double *log_p;
    choice of;
} choices;
void once(work *step, void **p, int threads) {
    team *t = take(threads);
    step(p, t);
    leave(t);
}
"""

_TEMPLATE = Template("""
#define EACH for (long j = 0; j < n; j++)
static inline $T most_$S(const $T *x, long n) {
    $T most = -INFINITY;
    _Pragma("omp simd reduction(max:most)") EACH most = x[j] > most ? x[j] : most;
    return most;
}
static void keep_top_k_$S($T *x, long n, long k, $I *key) { /* the k-th largest is found bit by bit, vectorised */
    union { $T x; $I i; } value;
    $I kth = $LEAST;
    EACH { union { $T x; $I i; } v = { x[j] }; key[j] = v.i < 0 ? v.i ^ ~$LEAST : v.i; } /* ordered as x */
    for (int bit = 8 * sizeof($I) - 1; bit >= 0; bit--) {
        $I next = ($I)((u$I)kth + ((u$I)1 << bit)), count = 0;
        _Pragma("omp simd reduction(+:count)") EACH count += key[j] >= next;
        kth = count >= k ? next : kth;
    }
    value.i = kth < 0 ? kth ^ ~$LEAST : kth;
    EACH x[j] = x[j] < value.x ? -INFINITY : x[j];
}
static void sink_$S(const $T *x, int64_t *order, long count, long at) { /* in a heap: likelier ids, then lower, first */
    int64_t id = order[at];
    for (long next = 2 * at + 1; next < count; at = next, next = 2 * at + 1) {
        #define BEFORE(a, b) (x[a] > x[b] || (x[a] == x[b] && (a) < (b)))
        if (next + 1 < count && BEFORE(order[next + 1], order[next])) next++;
        if (BEFORE(id, order[next])) break;
        #undef BEFORE
        order[at] = order[next];
    }
    order[at] = id;
}
static void keep_top_p_$S($T *x, long n, double p, int64_t *order) {
    double most = most_$S(x, n), sum = 0, before = 0;
    long count = 0;
    EACH if (x[j] > -INFINITY) { order[count++] = j; sum += exp_d(x[j] - most); }
    for (long at = count / 2 - 1; at >= 0; at--) sink_$S(x, order, count, at);
    while (count && before < p) { /* the likeliest leaves the heap */
        before += exp_d(x[order[0]] - most) / sum;
        order[0] = order[--count];
        if (count) sink_$S(x, order, count, 0);
    }
    for (long i = 0; i < count; i++) x[order[i]] = -INFINITY;
}
static void keep_min_p_$S($T *x, long n, double p, $T *space) {
    $T most = most_$S(x, n), sum = 0;
    _Pragma("omp simd reduction(+:sum)") EACH { space[j] = exp_$S(x[j] - most); sum += space[j]; }
    $T least = ($T)p * (1 / sum);
    EACH x[j] = space[j] / sum < least ? -INFINITY : x[j];
}
static int64_t draw_$S(const $T *x, long n, double uniform, double *summed, int64_t *order) {
    double most = most_$S(x, n), sum = 0;
    long count = 0, id = 0;
    EACH { order[count] = j; summed[count] = x[j] - most; count += x[j] > -INFINITY; } /* what is kept, contiguous */
    _Pragma("omp simd") for (long i = 0; i < count; i++) summed[i] = exp_d(summed[i]);
    for (long i = 0; i < count; i++) summed[i] = sum += summed[i];
    double target = uniform * sum, last = nextafter(sum, 0);
    target = target < last ? target : last;
    for (long i = 0; i < count; i++) id += summed[i] <= target;
    return order[id < count ? id : count - 1];
}
static int64_t choose_$S(const $T *said, const choice *c, double uniform, double *log_p) { /* -2: no choice */
    long n = c->width;
    $T *x = c->kept;
    int is_broken = 0;
    double sum = 0;
    _Pragma("omp simd reduction(|:is_broken)") EACH { x[j] = said[j]; is_broken |= !(said[j] < INFINITY); }
    double most = most_$S(said, n);
    if (is_broken || most == -INFINITY) return -2;
    _Pragma("omp simd reduction(+:sum)") EACH sum += exp_d(said[j] - most);
    for (long i = 0; i < c->prohibitions; i++) x[c->prohibited[i]] = -INFINITY;
    int64_t id = 0;
    if (c->is_greedy) {
        $T best = most_$S(x, n);
        while (x[id] != best) id++;
    } else {
        if (most_$S(x, n) == -INFINITY) return -2;
        if (c->temperature != 1) EACH x[j] /= ($T)c->temperature;
        if (c->top_k && c->top_k < n) keep_top_k_$S(x, n, c->top_k, (void *)c->summed);
        if (c->top_p < 1) keep_top_p_$S(x, n, c->top_p, c->order);
        if (c->min_p > 0) keep_min_p_$S(x, n, c->min_p, (void *)c->summed);
        id = draw_$S(x, n, uniform, c->summed, c->order);
    }
    *log_p = said[id] - most - log(sum);
    return x[id] > -INFINITY ? id : -2;
}
static void choose_rows_$S(char *const *p, long begin, long end) {
    const choices *all = (const void *)p[0];
    for (long row = begin; row < end; row++) {
        choice c = all->of;
        c.kept = ($T *)c.kept + row * c.width, c.summed += row * c.width, c.order += row * c.width;
        const $T *logits = ($T *)all->logits + row * all->stride;
        all->log_p[row] = 0;
        all->said[row] = all->active[row] ? choose_$S(logits, &c, all->uniform[row], all->log_p + row) : -1;
    }
}
int64_t decode_$S(work *step, void **p, int threads, int64_t rows, int64_t *unread, int is_read, choices *c,
                 int64_t count) { /* uniform, said and log_p are (count, rows) */
    team *t = take(threads);
    int64_t done = 0;
    for (int is_over = 0; done < count && !is_over; done++, c->uniform += rows, c->said += rows, c->log_p += rows) {
        if (done || !is_read) step(p, t);
        share(rows > 1 ? t : 0, choose_rows_$S, (char *const[]){(char *)c}, rows, 1);
        int is_stuck = 0;
        for (long row = 0; row < rows; row++) is_stuck |= c->said[row] == -2;
        if (is_stuck) {
            done = -1 - done;
            break;
        }
        for (long row = 0; row < rows; row++) {
            if (c->said[row] >= 0) unread[row] = c->said[row];
            for (long j = 0; j < c->of.stops; j++) is_over |= c->of.stop[j] == c->said[row];
        }
    }
    leave(t);
    return done;
}
#undef EACH
""")
_KINDS = (
    {"T": "float", "S": "f", "I": "int32_t", "LEAST": "INT32_MIN"},
    {"T": "double", "S": "d", "I": "int64_t", "LEAST": "INT64_MIN"},
)
CHOOSING = _HEAD + "".join(map(_TEMPLATE.substitute, _KINDS))
