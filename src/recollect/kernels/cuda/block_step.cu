// One step through a pre-norm Transformer block, in one launch: all blocks of threads stay, and meet between the
// products.
//
//   q, k, v = W_qkv norm(x)                 | each warp takes rows of W; every block normalises x for itself
//   c = softmax(q kᵀ) v                     | a head's list is split over several blocks
//   x = x + W_out c                         | the parts of c are put together by every block for itself
//   h = φ(W_up norm(x));  x = x + W_down h
//
// What a step costs: four meetings (about 1 µs each, and as much until what was written elsewhere is read) and a launch,
// and the weights, once, at the memory's speed; a warp asks for its next weights before it waits. The readable form is
// `Block.read`. Sizes are constants of the compilation:
//
//   SCALAR 0 float, 1 bfloat16, 2 half; ROWS; WIDTH, HIDDEN, HEADS, KV_HEADS, HEAD; ACTIVATION 0 relu, 1 gelu,
//   2 gelu by tanh; RMS; ROTARY; SCALE; EPS; WARPS; BLOCKS

#include "steps.cuh"

constexpr int THREADS = 32 * WARPS;
constexpr int QKV = (HEADS + 2 * KV_HEADS) * HEAD;
constexpr int LANES = HEAD / 8;                // lanes that share a slot of the list: eight features each
constexpr int TOGETHER = 32 / LANES;           // slots that a warp looks at together
constexpr int GROUPS = WARPS * TOGETHER;       // and a block
constexpr int SHORTEST = 64;                   // slots worth a block of their own
constexpr int PART = HEAD + 2;                 // a part of a context: its sum, and the sum's weight and largest score
constexpr int LISTS = ROWS * HEADS;
constexpr int MOST_PARTS = BLOCKS > LISTS ? BLOCKS : LISTS;  // of all contexts
constexpr int ROOM = WARPS * PART > 2 * MOST_PARTS ? WARPS * PART : 2 * MOST_PARTS;  // floats in which parts are put together

struct Layer {
    const scalar *norm, *norm_bias, *qkv, *qkv_bias, *out, *out_bias;
    const scalar *next_norm, *next_norm_bias, *up, *up_bias, *down, *down_bias;
    scalar *keys, *values;                     // (B, S, KV_HEADS, HEAD)
    const long long* length;                   // (B,)
    long long* length_after;                   // (B,)
    long long slots;                           // S
};

struct Space {                                 // what all blocks share, in this order
    float *x, *qkv, *hidden;                   // (ROWS, WIDTH), (ROWS, QKV), (ROWS, HIDDEN)
    float* parts;                              // (ROWS, HEADS, most_splits, PART)

    DEVICE explicit Space(float* begin)
        : x(begin), qkv(x + ROWS * WIDTH), hidden(qkv + ROWS * QKV), parts(hidden + ROWS * HIDDEN) {}
};

struct Meeting {
    u64 arrived;                               // so far, all meetings of all launches together; never reset
    u64 failed;
};

// ---- meeting -----------------------------------------------------------------------------------------------------

constexpr u64 PATIENCE = 2000000000ull;        // nanoseconds

// Returns false when the others did not come: a launch that cannot go on ends, and says so.
DEVICE bool meet(Meeting* meeting, int* flag) {
    block_sync();
    if (thread_index() == 0) {
        *flag = 1;
        const u64 all = (raise_counted(&meeting->arrived) / grid_size() + 1) * grid_size(), begun = nanoseconds();
        while (*flag && look(&meeting->arrived) < all)
            if (nanoseconds() - begun > PATIENCE) {
                *flag = 0;
                meeting->failed = 1;
            }
    }
    block_sync();
    return *flag != 0;
}

// ---- products ----------------------------------------------------------------------------------------------------

template <int K_, int N_, int PARTS_>
struct Product {                               // y (N) = W (N, K) x, PARTS warps to a row
    static constexpr int K = K_, N = N_, PARTS = PARTS_;
    static constexpr int SLOTS = WARPS / PARTS, GROUPS_ALL = K / 8;
    static constexpr int PER_LANE = (GROUPS_ALL + 32 * PARTS - 1) / (32 * PARTS);

    Eight raw[PER_LANE];

    DEVICE static int row_at(int turn) {
        const int slot = (thread_index() / 32) / PARTS;
        return block_index() + grid_size() * (slot + turn * SLOTS);
    }

    DEVICE static int group_at(int i) {
        return (i * PARTS + (thread_index() / 32) % PARTS) * 32 + thread_index() % 32;
    }

    DEVICE void ask(const scalar* w, int turn) {
        const int row = row_at(turn);
#pragma unroll
        for (int i = 0; i < PER_LANE; i++)
            if (row < N && group_at(i) < GROUPS_ALL) raw[i] = fetch(w + (long long)row * K + group_at(i) * 8);
    }

    DEVICE void multiply(const float* x, float* sums) const {
#pragma unroll
        for (int b = 0; b < ROWS; b++) sums[b] = 0.0f;
#pragma unroll
        for (int i = 0; i < PER_LANE; i++) {
            const int group = group_at(i);
            if (group >= GROUPS_ALL) continue;
            float w[8];
            spread(raw[i], w);
#pragma unroll
            for (int b = 0; b < ROWS; b++) add_product(sums[b], w, x + b * padded(K), group);
        }
#pragma unroll
        for (int b = 0; b < ROWS; b++) sums[b] = over_warp(sums[b]);
    }

    // Multiplies by all rows of this block; `first` holds what was asked for before the meeting. What is `added` to a sum is
    // asked for before the product.
    template <typename Added, typename End>
    DEVICE static void run(const scalar* w, Product first, const float* x, float* between, Added added, End end) {
        const int warp = thread_index() / 32, lane = thread_index() % 32;
        for (int turn = 0; block_index() + grid_size() * turn * SLOTS < N; turn++) {
            Product next;
            next.ask(w, turn + 1);
            const bool ends = lane == 0 && warp % PARTS == 0 && row_at(turn) < N;
            float sums[ROWS], more[ROWS] = {};
            if (ends)
                for (int b = 0; b < ROWS; b++) more[b] = added(row_at(turn), b);
            first.multiply(x, sums);
            if (PARTS > 1) {
                if (lane == 0)
                    for (int b = 0; b < ROWS; b++) between[warp * ROWS + b] = sums[b];
                block_sync();
                if (lane == 0 && warp % PARTS == 0)
                    for (int other = 1; other < PARTS; other++)
                        for (int b = 0; b < ROWS; b++) sums[b] += between[(warp + other) * ROWS + b];
                block_sync();
            }
            if (ends)
                for (int b = 0; b < ROWS; b++) end(row_at(turn), b, sums[b] + more[b]);
            first = next;
        }
    }
};

// As many warps to a row as there are to spare.
DEVICE constexpr int parts_for(int rows) { return rows * 4 <= BLOCKS * WARPS ? 4 : rows * 2 <= BLOCKS * WARPS ? 2 : 1; }

using Qkv = Product<WIDTH, QKV, parts_for(QKV)>;
using Out = Product<WIDTH, WIDTH, parts_for(WIDTH)>;
using Up = Product<WIDTH, HIDDEN, parts_for(HIDDEN)>;
using Down = Product<HIDDEN, WIDTH, parts_for(WIDTH)>;

// ---- norms -------------------------------------------------------------------------------------------------------

DEVICE void sum_over_block(float& a, float& b, float* between) {
    a = over_warp(a);
    b = over_warp(b);
    const int warp = thread_index() / 32;
    block_sync();
    if (thread_index() % 32 == 0) {
        between[2 * warp] = a;
        between[2 * warp + 1] = b;
    }
    block_sync();
    a = b = 0.0f;
    for (int w = 0; w < WARPS; w++) {
        a += between[2 * w];
        b += between[2 * w + 1];
    }
}

// normalised (shared) = (x − mean) / √(variance + ε) · γ + β. Sums are of x − x_0, so that little cancels.
template <typename From>
DEVICE void normalise(From from, const scalar* weight, const scalar* bias, float* normalised, float* between) {
    constexpr int EACH = (WIDTH + THREADS - 1) / THREADS;
    float weights[EACH], biases[EACH];         // asked for before they are needed
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int d = thread_index() + i * THREADS;
        weights[i] = d < WIDTH ? to_float(weight[d]) : 0.0f;
        biases[i] = d < WIDTH ? value_at(bias, d) : 0.0f;
    }
    for (int b = 0; b < ROWS; b++) {
        float mine[EACH], sum = 0.0f, squares = 0.0f;
        const float shift = RMS ? 0.0f : from(b, 0);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int d = thread_index() + i * THREADS;
            mine[i] = d < WIDTH ? from(b, d) : shift;
            sum += mine[i] - shift;
            squares += (mine[i] - shift) * (mine[i] - shift);
        }
        sum_over_block(sum, squares, between);
        const float off = RMS ? 0.0f : sum / WIDTH;
        const float factor = 1.0f / sqrtf(squares / WIDTH - off * off + EPS);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int d = thread_index() + i * THREADS;
            if (d >= WIDTH) continue;
            normalised[b * padded(WIDTH) + place(d)] = (mine[i] - shift - off) * factor * weights[i] + biases[i];
        }
    }
    block_sync();
}

// ---- attention ---------------------------------------------------------------------------------------------------

DEVICE int splits_of(long long length, int most) {
    const long long wanted = (length + SHORTEST) / SHORTEST;  // of length + 1 slots
    return wanted < most ? (int)wanted : most;
}

// Lay out eight features of a head, turned by their position where positions are rotary.
DEVICE void turned(const float* from, int first, long long position, float* to) {
    for (int j = 0; j < 8; j++) to[j] = from_elsewhere(from + first + j);
    if (!ROTARY) return;
    for (int j = 0; j < 8; j += 2) {
        const float angle = (float)position / powf(10000.0f, (float)(first + j) / HEAD);
        const float sine = sinf(angle), cosine = cosf(angle), even = to[j], odd = to[j + 1];
        to[j] = even * cosine - odd * sine;
        to[j + 1] = even * sine + odd * cosine;
    }
}

struct Running {                               // a softmax-weighted sum, as far as it has come
    float most, weight, sum[8];

    DEVICE void see(float score, const float* value) {
        const float larger = fmaxf(most, score), fade = expf(most - larger), share = expf(score - larger);
        most = larger;
        weight = weight * fade + share;
        for (int j = 0; j < 8; j++) sum[j] = sum[j] * fade + share * value[j];
    }

    DEVICE void join_over_warp() {             // the lanes that hold the same features
#pragma unroll
        for (int step = LANES; step < 32; step *= 2) {
            const float other = from_lane_xor(most, step), larger = fmaxf(most, other);
            const float mine = expf(most - larger), theirs = expf(other - larger);
            most = larger;
            weight = weight * mine + from_lane_xor(weight, step) * theirs;
#pragma unroll
            for (int j = 0; j < 8; j++) sum[j] = sum[j] * mine + from_lane_xor(sum[j], step) * theirs;
        }
    }
};

DEVICE float over_lanes(const float* a, const float* b) {
    float dot = 0.0f;
    for (int j = 0; j < 8; j++) dot += a[j] * b[j];
    for (int step = LANES / 2; step > 0; step /= 2) dot += from_lane_xor(dot, step);
    return dot;
}

// One head of one row over one split of its list: a part of its context.
DEVICE void attend(const Layer& layer, const Space& space, int row, int head, int split, int splits, float* part,
                       float* collected) {
    const int lane = thread_index() % LANES, group = thread_index() / LANES, kv = head / (HEADS / KV_HEADS), first = lane * 8;
    const long long length = layer.length[row];
    const float* mine = space.qkv + row * QKV;
    float q[8];
    turned(mine + head * HEAD, first, length, q);
    for (int j = 0; j < 8; j++) q[j] *= SCALE;
    const long long begin = length * split / splits, end = length * (split + 1) / splits;
    const long long stride = (long long)KV_HEADS * HEAD;
    const scalar* keys = layer.keys + (row * layer.slots * KV_HEADS + kv) * HEAD + first;
    const scalar* values = layer.values + (row * layer.slots * KV_HEADS + kv) * HEAD + first;
    Running running = {-1e30f, 0.0f, {}};
    for (long long base = begin; base < end; base += GROUPS) {
        const long long slot = base + group;
        float key[8] = {}, value[8] = {};
        if (slot < end) {
            spread(fetch_changing(keys + slot * stride), key);
            spread(fetch_changing(values + slot * stride), value);
        }
        const float score = over_lanes(q, key);
        if (slot < end) running.see(score, value);
    }
    if (split == splits - 1) {                 // the step itself, which is also written down
        float key[8], value[8];
        turned(mine + (HEADS + kv) * HEAD, first, length, key);
        for (int j = 0; j < 8; j++) value[j] = from_elsewhere(mine + (HEADS + KV_HEADS + kv) * HEAD + first + j);
        for (int j = 0; j < 8; j++) {          // as the next step will see them
            key[j] = to_float(from_float(key[j]));
            value[j] = to_float(from_float(value[j]));
        }
        const float score = over_lanes(q, key);
        if (group == 0) {
            running.see(score, value);
            if (head % (HEADS / KV_HEADS) == 0 && length < layer.slots)
                for (int j = 0; j < 8; j++) {
                    layer.keys[(row * layer.slots + length) * stride + kv * HEAD + first + j] = from_float(key[j]);
                    layer.values[(row * layer.slots + length) * stride + kv * HEAD + first + j] = from_float(value[j]);
                }
        }
    }
    // Put the warps together: (WARPS, PART) in shared memory.
    running.join_over_warp();
    float* own = collected + thread_index() / 32 * PART;
    if (group % TOGETHER == 0)
        for (int j = 0; j < 8; j++) own[first + j] = running.sum[j];
    if (thread_index() % 32 == 0) own[HEAD] = running.weight, own[HEAD + 1] = running.most;
    block_sync();
    for (int h = thread_index(); h < HEAD + 1; h += THREADS) {
        float most = -1e30f, sum = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; w++) most = fmaxf(most, collected[w * PART + HEAD + 1]);
#pragma unroll
        for (int w = 0; w < WARPS; w++) sum += collected[w * PART + h] * expf(collected[w * PART + HEAD + 1] - most);
        part[h] = sum;
        if (h == HEAD) part[HEAD + 1] = most;
    }
    block_sync();
}

// Put the splits of all contexts together, in shared memory: first what share each split has, then the sums. What comes
// from other blocks is asked for side by side.
DEVICE void gather_contexts(const Layer& layer, const Space& space, int most_splits, float* contexts, float* shares) {
    for (int at = thread_index(); at < LISTS * most_splits; at += THREADS) {
        const bool is_there = at % most_splits < splits_of(layer.length[at / most_splits / HEADS], most_splits);
        const float* end = space.parts + at * PART + HEAD;
        shares[2 * at] = is_there ? from_elsewhere(end + 1) : -1e30f;
        shares[2 * at + 1] = is_there ? from_elsewhere(end) : 0.0f;
    }
    block_sync();
    for (int list = thread_index(); list < LISTS; list += THREADS) {
        float *own = shares + 2 * list * most_splits, most = -1e30f, weight = 0.0f;
        for (int s = 0; s < most_splits; s++) most = fmaxf(most, own[2 * s]);
        for (int s = 0; s < most_splits; s++) own[2 * s] = expf(own[2 * s] - most), weight += own[2 * s] * own[2 * s + 1];
        for (int s = 0; s < most_splits; s++) own[2 * s] /= weight;
    }
    block_sync();
    for (int at = thread_index(); at < ROWS * WIDTH; at += THREADS) {
        const int row = at / WIDTH, splits = splits_of(layer.length[row], most_splits);
        const float* parts = space.parts + at / HEAD * most_splits * PART + at % HEAD;
        const float* own = shares + 2 * (at / HEAD) * most_splits;
        float sum = 0.0f;
#pragma unroll 4
        for (int s = 0; s < splits; s++) sum += own[2 * s] * from_elsewhere(parts + s * PART);
        contexts[row * padded(WIDTH) + place(at % WIDTH)] = sum;
    }
    block_sync();
}

DEVICE float activated(float x) {
    if (ACTIVATION == 0) return fmaxf(x, 0.0f);
    if (ACTIVATION == 1) return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
    return 0.5f * x * (1.0f + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
}

// ---- the step ----------------------------------------------------------------------------------------------------

struct Arguments {
    Layer layer;
    const scalar* input;
    scalar* output;
    const u8* valid;
    Meeting* meeting;
    float* scratch;
    int most_splits;
};

KERNEL(THREADS) block_step(const Arguments given) {
    const Layer& layer = given.layer;
    const Space space(given.scratch);
    const int most_splits = given.most_splits;
    SHARED_MEMORY(shared);
    float* vector = (float*)shared;            // (ROWS, padded WIDTH or HIDDEN)
    float* collected = vector + ROWS * padded(HIDDEN > WIDTH ? HIDDEN : WIDTH);  // ROOM
    float* between = collected + ROOM;         // (WARPS, ROWS or 2)
    int* flag = (int*)(between + WARPS * (ROWS > 2 ? ROWS : 2));
    Qkv qkv;
    qkv.ask(layer.qkv, 0);
    auto x_before = [&](int b, int d) { return to_float(given.input[b * WIDTH + d]); };
    normalise(x_before, layer.norm, layer.norm_bias, vector, between);
    auto qkv_bias = [&](int row, int) { return value_at(layer.qkv_bias, row); };
    Qkv::run(layer.qkv, qkv, vector, between, qkv_bias, [&](int row, int b, float sum) {
        space.qkv[b * QKV + row] = sum;
    });
    if (!meet(given.meeting, flag)) return;

    for (int item = block_index(); item < ROWS * HEADS * most_splits; item += grid_size()) {
        const int split = item % most_splits, head = item / most_splits % HEADS, row = item / most_splits / HEADS;
        const int splits = splits_of(layer.length[row], most_splits);
        float* part = space.parts + ((row * HEADS + head) * most_splits + split) * PART;
        if (split < splits) attend(layer, space, row, head, split, splits, part, collected);
    }
    Out out;
    out.ask(layer.out, 0);
    if (!meet(given.meeting, flag)) return;

    gather_contexts(layer, space, most_splits, vector, collected);
    auto x_and_bias = [&](int row, int b) { return x_before(b, row) + value_at(layer.out_bias, row); };
    Out::run(layer.out, out, vector, between, x_and_bias, [&](int row, int b, float sum) {
        space.x[b * WIDTH + row] = sum;
    });
    Up up;
    up.ask(layer.up, 0);
    if (!meet(given.meeting, flag)) return;

    auto x_between = [&](int b, int d) { return from_elsewhere(space.x + b * WIDTH + d); };
    normalise(x_between, layer.next_norm, layer.next_norm_bias, vector, between);
    auto up_bias = [&](int row, int) { return value_at(layer.up_bias, row); };
    Up::run(layer.up, up, vector, between, up_bias, [&](int row, int b, float sum) {
        space.hidden[b * HIDDEN + row] = activated(sum);
    });
    Down down;
    down.ask(layer.down, 0);
    if (!meet(given.meeting, flag)) return;

#pragma unroll 8
    for (int at = thread_index(); at < ROWS * HIDDEN; at += THREADS)
        vector[at / HIDDEN * padded(HIDDEN) + place(at % HIDDEN)] = from_elsewhere(space.hidden + at);
    block_sync();
    auto x_and_next_bias = [&](int row, int b) { return x_between(b, row) + value_at(layer.down_bias, row); };
    Down::run(layer.down, down, vector, between, x_and_next_bias, [&](int row, int b, float sum) {
        given.output[b * WIDTH + row] = from_float(sum);
    });
    if (block_index() == 0 && thread_index() < ROWS)
        layer.length_after[thread_index()] = layer.length[thread_index()] + (given.valid ? given.valid[thread_index()] : 1);
}
