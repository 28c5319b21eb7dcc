// Values that thread blocks exchange within a launch. Each has a tag, in one 64-bit word that is written and read as a whole
// (NCCL's LL protocol): a reader polls the word itself until the tag is the expected one, which takes one trip through L2,
// where a counter beside the values takes three. What a 16-bit model rounds anyway is sent in pairs: half the words to
// poll, which all blocks do at once and repeatedly.
#pragma once
#include "products.cuh"

constexpr u64 PATIENCE = 2000000000ull;        // nanoseconds
constexpr int SOONEST = 200;                   // clocks before a word can arrive: polling until then delays others
constexpr int PACK = SCALAR == 0 ? 1 : 2;      // activations in a word

DEVICE bool has_tag(const Two& words, u32 tag) {  // both of them: without a branch, which would wait for one after the other
    return (((u32)(words.a >> 32) ^ tag) | ((u32)(words.b >> 32) ^ tag)) == 0;
}

// Send two activations, of which the first is `feature` of a vector.
DEVICE void send_both(u64* vector, int feature, float first, float second, u32 tag) {
#if SCALAR == 0
    send(vector + feature, first, tag);
    send(vector + feature + 1, second, tag);
#else
    send_bits(vector + feature / 2, narrow_pair(first, second), tag);
#endif
}

// Unpack them; `feature` is even.
DEVICE float2 both_of(const u32* came, u32 feature) {
#if SCALAR == 0
    return {float_of(came[feature]), float_of(came[feature + 1])};
#else
    return {widen((u16)came[feature / 2]), widen((u16)(came[feature / 2] >> 16))};
#endif
}

// Receive words in pairs, from `where(at)` for each: `take(i, at, first, second)`, the i-th of a thread's. All threads of a
// block call it. Loads are in flight together, repeated until all have arrived: one by one each would take a round trip.
// False: some did not arrive; the clock is read only now and then, as that takes longer than a load.
template <int TOGETHER, typename Where, typename Take>
DEVICE bool collect(int twos, u32 tag, Where where, Take take) {
    for (int base = 0; base < twos; base += TOGETHER * THREADS) {
        const int first = base + (int)own_index();
        if (first >= twos) break;
        Two words[TOGETHER];
        bool is_whole = false;
        u64 begun = 0;
        hold(SOONEST);
        for (u32 tries = 1; !is_whole; tries++) {
            if (tries % 64 == 0) {
                const u64 now = nanoseconds();
                if (begun == 0) begun = now;
                if (now - begun > PATIENCE) return false;
            }
#pragma unroll
            for (int i = 0; i < TOGETHER; i++) words[i] = look_at_two(where(min(first + i * THREADS, twos - 1)));
            is_whole = true;
#pragma unroll
            for (int i = 0; i < TOGETHER; i++) is_whole = is_whole & has_tag(words[i], tag);
        }
#pragma unroll
        for (int i = 0; i < TOGETHER; i++)
            if (first + i * THREADS < twos) take(i, first + i * THREADS, (u32)words[i].a, (u32)words[i].b);
    }
    return true;
}
