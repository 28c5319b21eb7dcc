// Matrix-vector products and norms of the kernels for single steps. Constants: ROWS, WARPS, BLOCKS; EPS and RMS of norms
#pragma once
#include "steps.cuh"

constexpr int THREADS = 32 * WARPS;

// ---- products ----------------------------------------------------------------------------------------------------

// As many lanes to a row as a block's rows leave, if they are to be read in one turn; but a lane has not room for all.
DEVICE constexpr int lanes_for(int rows, int groups) {
    int lanes = rows <= WARPS ? 32 : rows <= 2 * WARPS ? 16 : 8;
    while (lanes < 32 && groups * (int)sizeof(scalar) > 24 * lanes) lanes *= 2;
    return lanes;
}

// y (N) = W (N, K) x + b. All that a turn reads can be asked for long before x is there.
template <int K_, int N_>
struct Product {
    static constexpr int K = K_, N = N_, EACH = (N + BLOCKS - 1) / BLOCKS;  // rows of a block, at most
    static constexpr int GROUPS = K / 8, LANES = lanes_for(EACH, GROUPS), PER_LANE = (GROUPS + LANES - 1) / LANES;
    static constexpr int SLOTS = THREADS / LANES, TURNS = (EACH + SLOTS - 1) / SLOTS;

    Eight raw[PER_LANE];
    scalar bias;

    DEVICE static int row_at(int turn) { return block_index() + BLOCKS * ((u32)thread_index() / LANES + turn * SLOTS); }
    DEVICE static u32 group_at(u32 i) { return i * LANES + (u32)thread_index() % LANES; }
    DEVICE static bool is_idle(int turn) {     // a warp that has no row
        return (int)(block_index() + BLOCKS * ((u32)thread_index() / 32 * (32 / LANES) + turn * SLOTS)) >= N;
    }

    DEVICE void ask(const scalar* w, const scalar* biases, int turn) {
        const int row = row_at(turn);
#pragma unroll
        for (int i = 0; i < PER_LANE; i++) {
            raw[i] = Eight{};                  // whatever was there before is not wanted: it would take up registers
            if (row < N && group_at(i) < GROUPS) raw[i] = fetch(w + (long long)row * K + group_at(i) * 8);
        }
        bias = scalar_at(row < N ? biases : nullptr, row);
    }

    DEVICE void multiply(const float* x, float* sums) const {
#pragma unroll
        for (int b = 0; b < ROWS; b++) sums[b] = 0.0f;
#pragma unroll
        for (int i = 0; i < PER_LANE; i++) {
            if (group_at(i) >= GROUPS) continue;
            float w[8];
            spread(raw[i], w);
#pragma unroll
            for (int b = 0; b < ROWS; b++) add_product(sums[b], w, x + b * padded(K), group_at(i));
        }
#pragma unroll
        for (int b = 0; b < ROWS; b++) sums[b] = over_lanes<LANES>(sums[b]);
    }

    // Multiply by all rows of this block, of which the first turn's were asked for: `end(row, b, y)` in one lane of each.
    template <typename End>
    DEVICE void run(const scalar* w, const scalar* biases, const float* x, End end) {
#pragma unroll 2                               // without copies, which would wait for what is on its way
        for (int turn = 0; turn < TURNS; turn++) {
            Product next;
            if (turn + 1 < TURNS) next.ask(w, biases, turn + 1);
            if (!is_idle(turn)) {
                float sums[ROWS];
                multiply(x, sums);
                if (thread_index() % LANES == 0 && row_at(turn) < N)
                    for (int b = 0; b < ROWS; b++) end(row_at(turn), b, sums[b] + to_float(bias));
            }
            if (turn + 1 < TURNS) *this = next;
        }
    }
};

// ---- norms -------------------------------------------------------------------------------------------------------

DEVICE void sum_over_block(float& a, float& b, float* between) {
    a = over_lanes<32>(a);
    b = over_lanes<32>(b);
    if (thread_index() % 32 == 0) {
        between[2 * (thread_index() / 32)] = a;
        between[2 * (thread_index() / 32) + 1] = b;
    }
    block_sync();
    a = b = 0.0f;
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
        a += between[2 * w];
        b += between[2 * w + 1];
    }
}

// (x − mean) / √(variance + ε) · γ + β over WIDTH features. Sums are of x − x_0, so that little cancels.
struct Norm {
    static constexpr int EACH = (WIDTH + THREADS - 1) / THREADS;
    scalar weights[EACH], biases[EACH];        // as they are stored: to widen them would be to wait for them

    DEVICE void ask(const scalar* weight, const scalar* bias) {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int d = thread_index() + i * THREADS;
            weights[i] = scalar_at(d < WIDTH ? weight : nullptr, d);
            biases[i] = scalar_at(d < WIDTH ? bias : nullptr, d);
        }
    }

    // From x (ROWS, WIDTH) to a vector laid out by `place`, both in shared memory; `between` is (ROWS, WARPS, 2).
    DEVICE void run(const float* x, float* normalised, float* between) const {
        for (int b = 0; b < ROWS; b++) {
            float mine[EACH], sum = 0.0f, squares = 0.0f;
            const float shift = RMS ? 0.0f : x[b * WIDTH];
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                const int d = thread_index() + i * THREADS;
                mine[i] = d < WIDTH ? x[b * WIDTH + d] - shift : 0.0f;
                sum += mine[i];
                squares += mine[i] * mine[i];
            }
            sum_over_block(sum, squares, between + b * 2 * WARPS);
            const float off = RMS ? 0.0f : sum * (1.0f / WIDTH);
            const float factor = one_over_root(squares * (1.0f / WIDTH) - off * off + EPS);
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                const int d = thread_index() + i * THREADS;
                const float scaled = (mine[i] - off) * factor * to_float(weights[i]) + to_float(biases[i]);
                if (d < WIDTH) normalised[b * padded(WIDTH) + place(d)] = scaled;
            }
        }
        block_sync();
    }
};
