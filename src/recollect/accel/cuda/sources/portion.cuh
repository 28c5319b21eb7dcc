// A block's portion of a matrix-vector product, for persistent blocks: neighbouring rows, so that one request brings them
// into L2 and one store sends their results.
#pragma once
#include "products.cuh"

constexpr int IN_FLIGHT = 12;                  // groups of eight weights that a lane's registers hold

// Iterations of a lane, if each row is split among so many warps.
DEVICE constexpr int turns_for(int rows, int groups, int cuts) {
    return ((rows * cuts + WARPS - 1) / WARPS) * ((groups + 32 * cuts - 1) / (32 * cuts));
}

DEVICE constexpr int cuts_for(int rows, int groups) {  // the split that leaves a lane the least work
    int best = 1;
    for (int cuts = 2; cuts <= 8 && WARPS % cuts == 0; cuts *= 2)
        if (turns_for(rows, groups, cuts) < turns_for(rows, groups, best)) best = cuts;
    return best;
}

// y (N) = W (N, K) x + b; rows are dealt by the UNIT, 1 or 2. Lanes lie along a row, and a lane has several rows, for which
// it reads x once. All that the first iteration reads can be requested long before x has arrived.
template <int K_, int N_, int UNIT>
struct Portion {
    static constexpr int K = K_, N = N_, GROUPS = K / 8, EACH = (N / UNIT + BLOCKS - 1) / BLOCKS * UNIT;  // rows, at most
    static constexpr int CUTS = cuts_for(EACH, GROUPS), CREWS = WARPS / CUTS;  // warps that have the same columns
    static constexpr int PER_LANE = (GROUPS + 32 * CUTS - 1) / (32 * CUTS), OWN = (EACH + CREWS - 1) / CREWS;
    static constexpr int FIT = IN_FLIGHT / PER_LANE < 1 ? 1 : IN_FLIGHT / PER_LANE, TOGETHER = OWN < FIT ? OWN : FIT;
    static constexpr int TURNS = (OWN + TOGETHER - 1) / TOGETHER, ENDS = EACH / UNIT * ROWS;
    static constexpr int SUMS = CUTS * EACH * ROWS;

    Eight raw[TOGETHER][PER_LANE];
    scalar bias[UNIT];

    DEVICE static u32 begin(int block) { return UNIT * ((u32)block * (N / UNIT) / BLOCKS); }
    DEVICE static u32 count() { return begin(block_index() + 1) - begin(block_index()); }
    DEVICE static u32 warp() { return own_index() / 32; }
    DEVICE static u32 row_at(int i) { return warp() / CUTS + CREWS * i; }  // within the portion
    DEVICE static u32 group_at(u32 i) { return (warp() % CUTS * PER_LANE + i) * 32 + (u32)thread_index() % 32; }

    DEVICE void ask_rows(const scalar* w, int turn) {
        const scalar* first = w + (long long)(begin(block_index()) + row_at(turn * TOGETHER)) * K + group_at(0) * 8;
#pragma unroll
        for (int t = 0; t < TOGETHER; t++) {   // at constant offsets from the first: computing addresses takes as long as polling
            const bool is_there = row_at(turn * TOGETHER + t) < count();
#pragma unroll
            for (int i = 0; i < PER_LANE; i++) {
                raw[t][i] = Eight{};           // the old value is dead: it would occupy registers
                if (is_there && group_at(i) < GROUPS) raw[t][i] = fetch(first + t * CREWS * K + i * 256);
            }
        }
    }

    DEVICE void ask_biases(const scalar* biases, int end) {
        const u32 row = (u32)end % (EACH / UNIT) * UNIT;
#pragma unroll
        for (int j = 0; j < UNIT; j++) bias[j] = scalar_at(row < count() ? biases : nullptr, begin(block_index()) + row + j);
    }

    DEVICE void ask(const scalar* w, const scalar* biases) {
        ask_rows(w, 0);
        ask_biases(biases, own_index());
    }

    // Into L2, for a later `ask`: a part by each warp.
    DEVICE static void announce(const scalar* w) {
        constexpr int ALL = EACH * K * (int)sizeof(scalar), PIECE = (ALL / WARPS + 127) / 128 * 128;
        const u32 at = warp() * PIECE, bytes = count() * K * (int)sizeof(scalar);
        if (thread_index() % 32 || at >= bytes) return;
        prefetch_bulk((const char*)(w + (long long)begin(block_index()) * K) + at, min((u32)PIECE, bytes - at));
    }

    DEVICE void multiply(const float* x, float (*sums)[ROWS]) const {
#pragma unroll
        for (int i = 0; i < PER_LANE; i++) {
            if (group_at(i) >= GROUPS) continue;
#pragma unroll
            for (int t = 0; t < TOGETHER; t++) {
                float w[8];
                spread(raw[t][i], w);
#pragma unroll
                for (int b = 0; b < ROWS; b++) add_product(sums[t][b], w, x + b * padded(K), group_at(i));
            }
        }
#pragma unroll
        for (int step = 16; step > 0; step /= 2)  // of all rows together: one by one each would take a full latency
#pragma unroll
            for (int t = 0; t < TOGETHER; t++)
#pragma unroll
                for (int b = 0; b < ROWS; b++) sums[t][b] += from_lane_xor(sums[t][b], step);
    }

    DEVICE void write_sums(const float* x, int turn, float* to) const {
        if (row_at(turn * TOGETHER) >= count()) return;
        float sums[TOGETHER][ROWS] = {};
        multiply(x, sums);
        if (thread_index() % 32) return;
#pragma unroll
        for (int t = 0; t < TOGETHER; t++) {
            const u32 row = row_at(turn * TOGETHER + t);
#pragma unroll
            for (int b = 0; b < ROWS; b++)
                if (row < EACH) to[(warp() % CUTS * ROWS + b) * EACH + row] = sums[t][b];
        }
    }

    DEVICE float ended(const float* sums, int b, int row, int j) const {
        float y = to_float(bias[j]);
#pragma unroll
        for (int cut = 0; cut < CUTS; cut++) y += sums[(cut * ROWS + b) * EACH + row + j];
        return y;
    }

    // Multiply by all rows, of which the first iteration's were requested: `end(row, b, y)` with UNIT numbers at y, in
    // neighbouring threads. `sums` is a buffer in shared memory, for SUMS. On return all threads have read x.
    template <typename End>
    DEVICE void run(const scalar* w, const scalar* biases, const float* x, float* sums, End end) {
#pragma unroll 2                               // without copies, which would wait for loads in flight
        for (int turn = 0; turn < TURNS; turn++) {
            Portion next;
            if (turn + 1 < TURNS) next.ask_rows(w, turn + 1);
            write_sums(x, turn, sums);
            if (turn + 1 < TURNS)
                for (int t = 0; t < TOGETHER; t++)
                    for (int i = 0; i < PER_LANE; i++) raw[t][i] = next.raw[t][i];
        }
        block_sync();
        for (int base = 0; base < ENDS; base += THREADS) {
            const u32 at = base + own_index(), row = at % (EACH / UNIT) * UNIT, b = at / (EACH / UNIT);
            if (base > 0) ask_biases(biases, at);
            if (at >= ENDS || row >= count()) continue;
            float y[UNIT];
            for (int j = 0; j < UNIT; j++) y[j] = ended(sums, b, row, j);
            end(begin(block_index()) + row, b, y);
        }
    }
};
