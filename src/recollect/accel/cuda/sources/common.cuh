// Common to the forward and the backward time loop: sizes, activations, and waits with a timeout.
//
// The host sets, for each plan:
//   CELL        0 LSTM, 1 GRU (reset after), 2 RNN with tanh, 3 RNN with relu
//   HALF        0 bf16, 1 fp16
//   TF32        1: float32, multiplied as tf32; HALF is 0
//   ROWS        batch rows of a group, 8, 16, 24, 32 or 64: the columns of every product
//   BLOCKS      blocks of a group; each owns UNITS hidden units
//   CLUSTER     blocks of a cluster
//   THROUGH_L2  1: blocks exchange through the L2 cache, 0: a group is one cluster and exchanges inside it
//   WIDE, DEEP  warpgroups that split the product's rows, and its depth k
//   LAID        tiles of weights of a warpgroup in shared memory: its last ones, in tf32
//   PAIRED      1: partial sums are sent in pairs, backward
//   CHUNKS      parts in which a warpgroup receives its share of k; PER_CHUNK blocks fill one
#pragma once
#include "hardware.cuh"

constexpr int SLOTS = CELL < 2 ? 4 : 1;  // values of a unit that W_ih x has, adjacent in memory
constexpr int COLUMN_TILES = ROWS / 8;
constexpr int BESIDE = 16 / sizeof(Number);  // elements of k, adjacent in memory: 8 or 4
constexpr int FOLD = TF32 ? 2 : 1;           // tiles of k in sixteen units
constexpr int TILE_BYTES = ROWS * 32;        // a tile of k for all rows, 16 or 8 of it
constexpr int LAID_BYTES = WIDE * DEEP * LAID * 2048;
constexpr int WARPGROUPS = WIDE * DEEP, THREADS = WARPGROUPS * 128;
constexpr int COUNTER_GAP = 32;  // words between counters, so that each has its own line
constexpr int AHEAD = 4;  // steps between the prefetch of values and their load
constexpr u64 PATIENCE = 4000000000;  // nanoseconds after which a wait gives up

// A multiprocessor evaluates 16 such functions a clock, which matters: ten for an LSTM's unit took 300 clocks of a step. The
// hardware tanh is one instead of two; it is exact to 2^-11, enough where values keep 8 bits.
#if HALF || TF32
DEVICE float sigmoid(float x) { return one_over(1.0f + exp2_of(-1.44269504f * x)); }
DEVICE float hyperbolic(float x) { return 1.0f - 2.0f * one_over(1.0f + exp2_of(2.88539008f * x)); }
#else
DEVICE float sigmoid(float x) { return 0.5f + 0.5f * tanh_of(0.5f * x); }
DEVICE float hyperbolic(float x) { return tanh_of(x); }
#endif

// One unit's slots as they are in memory. They are unpacked where they are used, not where they are loaded: the first use
// waits for the load.
#if TF32
struct Words {
#if CELL < 2
    float4 all;
    DEVICE float at(int slot) const { return slot == 0 ? all.x : slot == 1 ? all.y : slot == 2 ? all.z : all.w; }
#else
    float all;
    DEVICE float at(int) const { return all; }
#endif
};
#else
struct Words {
#if CELL < 2
    u64 all;
#else
    u16 all;
#endif
    DEVICE float at(int slot) const { return widen((u16)(all >> 16 * slot)); }
};
#endif
DEVICE Words load_words(const Number* from) {
    Words words;
    words.all = *(const decltype(words.all)*)from;
    return words;
}
DEVICE void store_words(Number* to, const float* values) {
#if CELL < 2 && TF32
    *(float4*)to = make_float4(values[0], values[1], values[2], values[3]);
#elif CELL < 2
    *(u64*)to = (u64)narrow_pair(values[2], values[3]) << 32 | narrow_pair(values[0], values[1]);
#else
    *to = narrow(values[0]);
#endif
}

// Where element k of a row is in the layout that wgmma reads.
DEVICE u32 place(u32 k, u32 row) { return (k / BESIDE * ROWS + row) * BESIDE + k % BESIDE; }

// A wait that takes too long gives up: it reports that, and from then on this thread waits for nothing. All threads still
// run to the last step, so that no barrier misses one; what they write is invalid, and the host raises.
struct Guard {
    u32 *failed, *told;
    bool gave_up;

    template <class Ready>
    DEVICE void until(Ready ready) {
        if (gave_up || ready()) return;
        const u64 start = nanoseconds();
        for (u32 tries = 1; !ready(); ++tries) {
            if (tries % 64 == 0 && (peek(failed) != 0 || nanoseconds() - start > PATIENCE)) {
                tell(failed);
                tell(told);
                gave_up = true;
                return;
            }
        }
    }
};

// The weights of this thread, for as long as the kernel runs: tiles of 64 x 16 or 64 x 8, in the order of wgmma's fragments;
// the i-th that is used is packed as `which(i)`.
template <int COUNT, int ALL, class Which>
DEVICE void load_weights(u32 (*weights)[4], const Number* packed, int block, Which which) {
    const int warpgroup = thread_index() / 128, thread = thread_index() % 128;
    const u32* from = (const u32*)packed + ((u64)(block * WARPGROUPS + warpgroup) * ALL * 128 + thread) * 4;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
#pragma unroll
        for (int r = 0; r < 4; ++r) weights[i][r] = from[which(i) * 512 + r];
    }
}

// Those of a warpgroup that do not fit in registers, as wgmma reads them: [k / BESIDE][row of 64][BESIDE] each.
template <int ALL>
DEVICE void lay_weights(u8* laid, const Number* packed, int block) {
    const int warpgroup = thread_index() / 128, thread = thread_index() % 128;
    const float4* from = (const float4*)packed + ((u64)(block * WARPGROUPS + warpgroup) * ALL + ALL - LAID) * 128;
    float4* to = (float4*)laid + warpgroup * LAID * 128;
    for (int i = 0; i < LAID; ++i) to[i * 128 + thread] = from[i * 128 + thread];
}

// One tile's product, with the weights in registers or in shared memory.
template <int KEPT>
DEVICE void multiply_tile(float* sums, const u32 (*weights)[4], u64 laid, int tile, u64 b, bool adds) {
#if LAID
    if (tile >= KEPT) return wgmma_laid(sums, laid + (u64)((tile - KEPT) * 2048 >> 4), b, adds);
#endif
    wgmma(sums, weights[tile], b, adds);
}

// How many blocks fill a chunk: the last ones may be beyond the group.
DEVICE u32 fillers(int chunk) {
    const int first = chunk * PER_CHUNK, last = first + PER_CHUNK;
    return (last < BLOCKS ? last : BLOCKS) - (first < BLOCKS ? first : BLOCKS);
}

