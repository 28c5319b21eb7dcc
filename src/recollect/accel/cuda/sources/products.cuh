// Matrix-vector products and norms of the single-step kernels. Constants: ROWS, WARPS, BLOCKS; EPS and RMS of norms
#pragma once
#include "steps.cuh"

constexpr int THREADS = 32 * WARPS;

DEVICE u32 own_index() {                       // of a thread, and known to be small
    const u32 index = thread_index();
    ASSUME(index < THREADS);
    return index;
}

// ---- matrix-vector products --------------------------------------------------------------------------------------

// As many lanes to a row as a block's rows allow, if they are to be read in one iteration, within a lane's registers.
DEVICE constexpr int lanes_for(int rows, int groups) {
    int lanes = rows <= WARPS ? 32 : rows <= 2 * WARPS ? 16 : 8;
    while (lanes < 32 && groups * (int)sizeof(scalar) > 24 * lanes) lanes *= 2;
    return lanes;
}

// y (N) = W (N, K) x + b. All that an iteration reads can be requested long before x has arrived.
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
            raw[i] = Eight{};                  // the old value is dead: it would occupy registers
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

    // Multiply by all rows of this block, of which the first iteration's were requested: `end(row, b, y)` in one lane of each.
    template <typename End>
    DEVICE void run(const scalar* w, const scalar* biases, const float* x, End end) {
#pragma unroll 2                               // without copies, which would wait for loads in flight
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

// The sums of all threads' a and b, in all threads; false where some thread passes false.
DEVICE bool sum_over_block(float& a, float& b, float* between, bool goes_on) {
    a = over_lanes<32>(a);
    b = over_lanes<32>(b);
    if (thread_index() % 32 == 0) {
        between[2 * (thread_index() / 32)] = a;
        between[2 * (thread_index() / 32) + 1] = b;
    }
    goes_on = block_and(goes_on);
    a = b = 0.0f;
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
        a += between[2 * w];
        b += between[2 * w + 1];
    }
    return goes_on;
}

// (x − mean) / √(variance + ε) · γ + β over WIDTH features, a thread's in pairs. Sums are of x − x_0, so that little cancels.
struct Norm {
    static constexpr int TWOS = WIDTH / 2, EACH = (TWOS + THREADS - 1) / THREADS;
    scalar weights[2 * EACH], biases[2 * EACH];  // as they are stored: converting them would wait for the loads

    DEVICE static u32 two_at(int i) { return own_index() + i * THREADS; }

    DEVICE void ask(const scalar* weight, const scalar* bias) {
#pragma unroll
        for (int i = 0; i < 2 * EACH; i++) {
            const u32 d = 2 * two_at(i / 2) + i % 2;
            weights[i] = scalar_at(d < WIDTH ? weight : nullptr, d);
            biases[i] = scalar_at(d < WIDTH ? bias : nullptr, d);
        }
    }

    // From a thread's x − shift, 0 where it has none, to a vector laid out by `place`, of which a thread's part is written
    // on return; `between` is (WARPS, 2).
    DEVICE bool end(const float2* mine, float* normalised, float* between, bool goes_on) const {
        float sum = 0.0f, squares = 0.0f;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            sum += mine[i].x + mine[i].y;
            squares += mine[i].x * mine[i].x + mine[i].y * mine[i].y;
        }
        if (!sum_over_block(sum, squares, between, goes_on)) return false;
        const float off = RMS ? 0.0f : sum * (1.0f / WIDTH);
        const float factor = one_over_root(squares * (1.0f / WIDTH) - off * off + EPS);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const float first = (mine[i].x - off) * factor * to_float(weights[2 * i]) + to_float(biases[2 * i]);
            const float second = (mine[i].y - off) * factor * to_float(weights[2 * i + 1]) + to_float(biases[2 * i + 1]);
            if (two_at(i) < TWOS) *(float2*)(normalised + place(2 * two_at(i))) = make_float2(first, second);
        }
        return true;
    }

    // From x (ROWS, WIDTH), in shared memory too; `between` is (ROWS, WARPS, 2).
    DEVICE void run(const float* x, float* normalised, float* between) const {
        for (int b = 0; b < ROWS; b++) {
            float2 mine[EACH];
            const float shift = RMS ? 0.0f : x[b * WIDTH];
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                const float* from = x + b * WIDTH + 2 * two_at(i);
                mine[i] = make_float2(0.0f, 0.0f);
                if (two_at(i) < TWOS) mine[i] = make_float2(from[0] - shift, from[1] - shift);
            }
            end(mine, normalised + b * padded(WIDTH), between + b * 2 * WARPS, true);
        }
        block_sync();
    }
};
