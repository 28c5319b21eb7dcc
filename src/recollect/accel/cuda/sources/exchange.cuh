// Values that blocks tell each other within a launch. Each goes with a tag, in one word of 64 bits that is written and
// read whole (NCCL's LL protocol): a reader looks at the word itself until the tag is the one it waits for, which takes
// one way through the second-level cache, where a counter beside the values takes three. What a model of 16 bits rounds
// anyway goes by twos: half the words to look at, which all blocks do at once and again and again.
#pragma once
#include "products.cuh"

constexpr u64 PATIENCE = 2000000000ull;        // nanoseconds
constexpr int SOONEST = 200;                   // clocks before a word can be there: looks until then are in others' way
constexpr int PACK = SCALAR == 0 ? 1 : 2;      // activations in a word

DEVICE bool has_tag(const Two& words, u32 tag) {  // both of them: without a branch, which would wait for each in turn
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

// And take them out of what came; `feature` is even.
DEVICE float2 both_of(const u32* came, u32 feature) {
#if SCALAR == 0
    return {float_of(came[feature]), float_of(came[feature + 1])};
#else
    return {widen((u16)came[feature / 2]), widen((u16)(came[feature / 2] >> 16))};
#endif
}

// Take words by twos, from `where(at)` for each: `take(i, at, first, second)`, the i-th of a thread's. All threads of a block.
// Looks are on their way together, again and again until all is there: one by one they would take a way each. False: some
// did not come; the clock is looked at now and then, as that takes longer than a look at a word.
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
