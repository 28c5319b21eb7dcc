// From logits to an id in one launch, a thread block per row: the likeliest, or a draw among the k likeliest. Writes it with
// its log p under the model; `live` are the rows that emitted an id, `active` those that have not ended. The readable form
// is generation/filters.py. Constants of the compilation: GREEDY; TOP_K, 0 for all; TEMPERATURE; THREADS, a power of two

#define SCALAR 0
#define ROWS 1
#include "steps.cuh"

#define NOTHING float_of(0xff800000u)          // −∞

DEVICE u32 in_order(float value) {    // as an integer that compares in the same order
    const u32 bits = bits_of(value);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

struct alignas(8) Sum { float most, sum; };    // of exponentials: sum · exp(most)
struct alignas(8) Best { float value; int id; };

// Combine the values of neighbouring lanes, in all of them.
template <int LANES, typename T, typename Join>
DEVICE T over_neighbours(T mine, Join join) {
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2) {
        const u64 bits = from_lane_xor(*(const u64*)&mine, step);
        mine = join(mine, *(const T*)&bits);
    }
    return mine;
}

template <typename T, typename Join>
DEVICE T over_block(T mine, T* between, Join join) {
    constexpr int WARPS = THREADS / 32;
    mine = over_neighbours<32>(mine, join);
    block_sync();
    if (thread_index() % 32 == 0) between[thread_index() / 32] = mine;
    block_sync();
    return over_neighbours<WARPS>(between[thread_index() % WARPS], join);
}

DEVICE Sum joined(Sum a, Sum b) {
    const float most = fmaxf(a.most, b.most);
    return {most, a.sum * expf(a.most - most) + b.sum * expf(b.most - most)};
}
DEVICE Best better(Best a, Best b) { return b.value > a.value || (b.value == a.value && b.id < a.id) ? b : a; }

// The sum over all logits, and the best of those to choose from, as far as a thread reads them: many at a time, so that the
// loads are in flight together.
DEVICE void look_through(const float* logits, const float* filtered, int count, Sum& sum, Best& best) {
    constexpr int EACH = 16;
    for (int base = thread_index(); base < count; base += EACH * THREADS) {
        float own[EACH], choice[EACH], most = sum.most, more = 0.0f;
#pragma unroll
        for (int j = 0; j < EACH; j++) own[j] = base + j * THREADS < count ? logits[base + j * THREADS] : NOTHING;
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            choice[j] = own[j];
            if (filtered != logits && base + j * THREADS < count) choice[j] = filtered[base + j * THREADS];
        }
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            most = fmaxf(most, own[j]);
            if (choice[j] > best.value) best = {choice[j], base + j * THREADS};
        }
#pragma unroll
        for (int j = 0; j < EACH; j++) more += expf(own[j] - most);
        sum = {most, sum.sum * expf(sum.most - most) + more};
    }
}

// The k-th largest number as `in_order` maps it, eight bits at a time.
DEVICE u32 kth_largest(const float* values, int count, u32 k, u32* counts, u32* found) {
    u32 prefix = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        block_sync();
        for (int i = thread_index(); i < 256; i += THREADS) counts[i] = 0;
        block_sync();
        for (int i = thread_index(); i < count; i += THREADS) {
            const u32 key = in_order(values[i] / TEMPERATURE);
            if (shift == 24 || key >> (shift + 8) == prefix >> (shift + 8)) add_shared(&counts[key >> shift & 255u]);
        }
        block_sync();
        if (thread_index() == 0) {
            int digit = 255;
            for (; digit > 0 && counts[digit] < k; digit--) k -= counts[digit];
            found[0] = prefix | (u32)digit << shift;
            found[1] = k;
        }
        block_sync();
        prefix = found[0];
        k = found[1];
    }
    return prefix;
}

// The id at which the cumulative sum passes u of the total. Threads sum in another order than one would: where rounding
// leaves the target to no thread, it is the last id with a positive share.
DEVICE int drawn(const float* values, int count, float most, double u, u32 least, double* sums, int* found) {
    const int each = (count + THREADS - 1) / THREADS, begin = thread_index() * each, end = min(begin + each, count);
    auto share = [&](int i) {
        const float scaled = values[i] / TEMPERATURE;
        return TOP_K && in_order(scaled) < least ? 0.0 : exp((double)scaled - (double)most);
    };
    double mine = 0.0;
    int last = -1;
    for (int i = begin; i < end; i++) {
        const double more = share(i);
        mine += more;
        if (more > 0.0) last = i;
    }
    block_sync();
    sums[thread_index()] = mine;
    if (thread_index() == 0) {
        found[0] = count;
        found[1] = 0;
    }
    for (int step = 1; step < THREADS; step *= 2) {
        block_sync();
        const double before = thread_index() >= step ? sums[thread_index() - step] : 0.0;
        block_sync();
        sums[thread_index()] += before;
    }
    block_sync();
    const double total = sums[THREADS - 1], target = fmin(u * total, nextafter(total, 0.0));
    double sum = thread_index() ? sums[thread_index() - 1] : 0.0;
    max_shared(&found[1], last);
    if (last >= 0 && sum <= target && target < sums[thread_index()]) {
        int at = begin;
        for (; at < last; at++) {
            sum += share(at);
            if (sum > target) break;
        }
        min_shared(&found[0], at);
    }
    block_sync();
    return found[0] < count ? found[0] : found[1];
}

struct Arguments {
    const float *logits, *filtered;            // (B, V): the model's own, for log p; those to choose from
    const double* uniform;                     // (turns, B)
    const long long *at, *stop;                // the iteration's number; (stops,)
    u8 *active, *live;                         // (B,)
    long long *ids, *said;                     // (B,), (turns, B)
    double* log_p;                             // (turns, B)
    int vocabulary, stops;
};

KERNEL(THREADS) choose(const Arguments given) {
    SHARED_MEMORY(shared);
    double* between = (double*)shared;         // (THREADS,), or as many of the structures above
    u32* counts = (u32*)(between + THREADS);   // (256,)
    u32* kept = counts + 256;                  // (2,)
    int* found = (int*)(kept + 2);             // (2,)
    const int vocabulary = given.vocabulary;
    const long long at = *given.at;
    const int row = block_index(), rows = grid_size();
    const float *said_by_model = given.logits + (long long)row * vocabulary, *values = given.filtered + (long long)row * vocabulary;
    Sum sum = {-1e30f, 0.0f};
    Best best = {NOTHING, 0x7fffffff};
    look_through(said_by_model, values, vocabulary, sum, best);
    sum = over_block(sum, (Sum*)between, joined);
    best = over_block(best, (Best*)between, better);
    int id = best.id;
    if (!GREEDY) {
        const u32 least =
            TOP_K && TOP_K < vocabulary ? kth_largest(values, vocabulary, TOP_K, counts, kept) : 0u;
        const double u = given.uniform[at * rows + row];
        id = drawn(values, vocabulary, best.value / TEMPERATURE, u, least, between, found);
    }
    if (thread_index() != 0) return;
    id = id < vocabulary ? id : vocabulary - 1;  // NaN: the caller sees it in log p
    const bool is_live = given.active[row];
    bool goes_on = is_live;
    for (int i = 0; i < given.stops; i++) goes_on = goes_on && id != given.stop[i];
    given.ids[row] = id;
    given.live[row] = is_live;
    given.said[at * rows + row] = is_live ? id : -1;
    given.log_p[at * rows + row] = is_live ? (double)(said_by_model[id] - sum.most - logf(sum.sum)) : 0.0;
    given.active[row] = goes_on;
}
