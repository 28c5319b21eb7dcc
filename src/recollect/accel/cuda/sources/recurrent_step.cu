// One step of an RNN, GRU or LSTM in one launch: a warp updates a unit, from its rows of both matrices to its new state.
// Its cost is a launch and reading the weights once at memory bandwidth. The readable form is the layer's
// `step`. Sizes are constants of the compilation:
//
//   SCALAR 0 float, 1 bfloat16, 2 half; ROWS; WIDTH, HIDDEN; CELL 0 tanh, 1 relu, 2 GRU (reset after), 3 LSTM; WARPS

#include "steps.cuh"

constexpr int THREADS = 32 * WARPS;
constexpr int GATES = CELL == 3 ? 4 : CELL == 2 ? 3 : 1;

// Copy (ROWS, K) to shared memory.
template <int K>
DEVICE void lay_out(const scalar* from, float* to) {
    for (int at = thread_index(); at < ROWS * K; at += THREADS)
        to[at / K * padded(K) + place(at % K)] = to_float(from[at]);
}

// A row of a weight. All rows are requested before the first is used: memory latency dominates.
template <int K>
struct Row {
    static constexpr int PER_LANE = (K / 8 + 31) / 32;
    Eight raw[PER_LANE];

    DEVICE void ask(const scalar* weights, int row) {
#pragma unroll
        for (int i = 0; i < PER_LANE; i++) {
            const int group = i * 32 + thread_index() % 32;
            if (group < K / 8) raw[i] = fetch(weights + (long long)row * K + group * 8);
        }
    }

    // w · x[b], in every lane.
    DEVICE float times(const float* x) const {
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < PER_LANE; i++) {
            const int group = i * 32 + thread_index() % 32;
            if (group >= K / 8) continue;
            float w[8];
            spread(raw[i], w);
            add_product(sum, w, x, group);
        }
        return over_lanes<32>(sum);
    }
};

DEVICE float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// Update one unit from W_ih x + b_ih and W_hh h + b_hh, one number per gate; `cell` is the LSTM's.
DEVICE float renewed(const float* from_x, const float* from_h, float hidden, float& cell) {
    if (CELL == 0) return tanhf(from_x[0] + from_h[0]);
    if (CELL == 1) return fmaxf(from_x[0] + from_h[0], 0.0f);
    if (CELL == 2) {
        const float reset = sigmoid(from_x[0] + from_h[0]), update = sigmoid(from_x[1] + from_h[1]);
        const float candidate = tanhf(from_x[GATES - 1] + reset * from_h[GATES - 1]);
        return update * hidden + (1.0f - update) * candidate;
    }
    const float input = sigmoid(from_x[0] + from_h[0]), forget = sigmoid(from_x[1 % GATES] + from_h[1 % GATES]);
    const float candidate = tanhf(from_x[2 % GATES] + from_h[2 % GATES]);
    cell = forget * cell + input * candidate;
    return sigmoid(from_x[3 % GATES] + from_h[3 % GATES]) * tanhf(cell);
}

struct Arguments {
    const scalar *from_x, *from_h, *bias_x, *bias_h;  // weights (G·H, D), (G·H, H), biases (G·H,)
    const scalar *x, *hidden, *cell;           // (ROWS, WIDTH), (ROWS, HIDDEN) twice
    const u8* valid;
    scalar *hidden_after, *cell_after;
};

KERNEL(THREADS) recurrent_step(const Arguments given) {
    SHARED_MEMORY(shared);
    float* input = (float*)shared;             // (ROWS, padded WIDTH)
    float* before = input + ROWS * padded(WIDTH);  // (ROWS, padded HIDDEN)
    const int unit = block_index() * WARPS + thread_index() / 32, lane = thread_index() % 32;
    Row<WIDTH> to_x[GATES];
    Row<HIDDEN> to_h[GATES];
#pragma unroll
    for (int gate = 0; gate < GATES && unit < HIDDEN; gate++) {
        to_x[gate].ask(given.from_x, gate * HIDDEN + unit);
        to_h[gate].ask(given.from_h, gate * HIDDEN + unit);
    }
    lay_out<WIDTH>(given.x, input);
    lay_out<HIDDEN>(given.hidden, before);
    block_sync();
    if (unit >= HIDDEN) return;
#pragma unroll
    for (int b = 0; b < ROWS; b++) {
        float by_x[GATES], by_h[GATES];
#pragma unroll
        for (int gate = 0; gate < GATES; gate++) {
            by_x[gate] = to_x[gate].times(input + b * padded(WIDTH)) + value_at(given.bias_x, gate * HIDDEN + unit);
            by_h[gate] = to_h[gate].times(before + b * padded(HIDDEN)) + value_at(given.bias_h, gate * HIDDEN + unit);
        }
        if (lane != b % 32) continue;
        const int at = b * HIDDEN + unit;
        const bool counts = !given.valid || given.valid[b];
        float renewed_cell = CELL == 3 ? to_float(given.cell[at]) : 0.0f;
        const float renewed_hidden = renewed(by_x, by_h, to_float(given.hidden[at]), renewed_cell);
        given.hidden_after[at] = counts ? from_float(renewed_hidden) : given.hidden[at];
        if (CELL == 3) given.cell_after[at] = counts ? from_float(renewed_cell) : given.cell[at];
    }
}
