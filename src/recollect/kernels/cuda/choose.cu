// From logits to an id in one launch, a block of threads to a row: the likeliest, or a draw among the k likeliest. Says
// it, with its log p by the model itself; `live` are the rows that said something, `active` those that may go on. The
// readable form is generate/filters.py. Constants of the compilation: GREEDY; TOP_K, 0 for all; TEMPERATURE; THREADS, a
// power of two

#include "device.cuh"

DEVICE unsigned int in_order(float value) {    // as an integer that compares alike
    const unsigned int bits = as_bits(value);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

template <typename T, typename Join>
DEVICE T over_block(T mine, T* between, Join join) {
    __syncthreads();
    between[threadIdx.x] = mine;
    for (int step = THREADS / 2; step > 0; step /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < step) between[threadIdx.x] = join(between[threadIdx.x], between[threadIdx.x + step]);
    }
    __syncthreads();
    return between[0];
}

struct Sum { float most, sum; };               // of exponentials: sum · exp(most)
struct Best { float value; int id; };

// The k-th largest number as `in_order` gives it, eight bits at a time.
DEVICE unsigned int kth_largest(const float* values, int count, unsigned int k, unsigned int* counts, unsigned int* found) {
    unsigned int prefix = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        __syncthreads();
        for (int i = threadIdx.x; i < 256; i += THREADS) counts[i] = 0;
        __syncthreads();
        for (int i = threadIdx.x; i < count; i += THREADS) {
            const unsigned int key = in_order(values[i] / TEMPERATURE);
            if (shift == 24 || key >> (shift + 8) == prefix >> (shift + 8)) add_shared(&counts[key >> shift & 255u]);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            int digit = 255;
            for (; digit > 0 && counts[digit] < k; digit--) k -= counts[digit];
            found[0] = prefix | (unsigned int)digit << shift;
            found[1] = k;
        }
        __syncthreads();
        prefix = found[0];
        k = found[1];
    }
    return prefix;
}

// The id at which the summed shares pass u of their total. Threads sum in another order than one would: where rounding
// leaves the target to nobody, it is the last that has a share.
DEVICE int drawn(const float* values, int count, float most, double u, unsigned int least, double* sums, int* found) {
    const int each = (count + THREADS - 1) / THREADS, begin = threadIdx.x * each, end = min(begin + each, count);
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
    __syncthreads();
    sums[threadIdx.x] = mine;
    if (threadIdx.x == 0) {
        found[0] = count;
        found[1] = 0;
    }
    for (int step = 1; step < THREADS; step *= 2) {
        __syncthreads();
        const double before = (int)threadIdx.x >= step ? sums[threadIdx.x - step] : 0.0;
        __syncthreads();
        sums[threadIdx.x] += before;
    }
    __syncthreads();
    const double total = sums[THREADS - 1], target = fmin(u * total, nextafter(total, 0.0));
    double sum = threadIdx.x ? sums[threadIdx.x - 1] : 0.0;
    max_shared(&found[1], last);
    if (last >= 0 && sum <= target && target < sums[threadIdx.x]) {
        int at = begin;
        for (; at < last; at++) {
            sum += share(at);
            if (sum > target) break;
        }
        min_shared(&found[0], at);
    }
    __syncthreads();
    return found[0] < count ? found[0] : found[1];
}

extern "C" __global__ void __launch_bounds__(THREADS)
choose(const float* logits, const float* filtered, int vocabulary, const double* uniform, const long long* at,
       const long long* stop, int stops, unsigned char* active, unsigned char* live, long long* ids, long long* said,
       double* log_p) {
    __shared__ union { Sum sums[THREADS]; Best best[THREADS]; double shares[THREADS]; } between;
    __shared__ unsigned int counts[256], kept[2];
    __shared__ int found[2];
    const int row = blockIdx.x, rows = gridDim.x;
    const float *said_by_model = logits + (long long)row * vocabulary, *values = filtered + (long long)row * vocabulary;
    Sum sum = {-1e30f, 0.0f};
    Best best = {as_float(0xff800000u), 0x7fffffff};  // −∞
    for (int i = threadIdx.x; i < vocabulary; i += THREADS) {
        const float most = fmaxf(sum.most, said_by_model[i]);
        sum = {most, sum.sum * expf(sum.most - most) + expf(said_by_model[i] - most)};
        if (values[i] > best.value) best = {values[i], i};
    }
    sum = over_block(sum, between.sums, [](Sum a, Sum b) {
        const float most = fmaxf(a.most, b.most);
        return Sum{most, a.sum * expf(a.most - most) + b.sum * expf(b.most - most)};
    });
    best = over_block(best, between.best, [](Best a, Best b) {
        return b.value > a.value || (b.value == a.value && b.id < a.id) ? b : a;
    });
    int id = best.id;
    if (!GREEDY) {
        const unsigned int least =
            TOP_K && TOP_K < vocabulary ? kth_largest(values, vocabulary, TOP_K, counts, kept) : 0u;
        const double u = uniform[*at * rows + row];
        id = drawn(values, vocabulary, best.value / TEMPERATURE, u, least, between.shares, found);
    }
    if (threadIdx.x != 0) return;
    id = id < vocabulary ? id : vocabulary - 1;  // NaN: whoever asked will see it in log p
    const bool is_live = active[row];
    bool goes_on = is_live;
    for (int i = 0; i < stops; i++) goes_on = goes_on && id != stop[i];
    ids[row] = id;
    live[row] = is_live;
    said[*at * rows + row] = is_live ? id : -1;
    log_p[*at * rows + row] = is_live ? (double)(said_by_model[id] - sum.most - logf(sum.sum)) : 0.0;
    active[row] = goes_on;
}
