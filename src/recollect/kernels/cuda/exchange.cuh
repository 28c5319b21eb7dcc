// Values that blocks tell each other within a launch. Each goes with a tag, in one word of 64 bits that is written and
// read whole (NCCL's LL protocol): a reader looks at the word itself until the tag is the one it waits for, which takes
// one way through the second-level cache, where a counter beside the values takes three.
#pragma once
#include "products.cuh"

constexpr u64 PATIENCE = 2000000000ull;        // nanoseconds

DEVICE float value_of(u64 word) { return float_of((u32)word); }
DEVICE bool has_tag(const Two& words, u32 tag) {  // both of them: without a branch, which would wait for each in turn
    return (((u32)(words.a >> 32) ^ tag) | ((u32)(words.b >> 32) ^ tag)) == 0;
}

// Take words by twos, from `where(i)` for each i: `take(i, first, second)`. All threads of a block. Looks are on their way
// together, again and again until all is there: one by one they would take a way each. False: some did not come; the
// clock is looked at now and then, as that takes longer than a look at a word.
template <int TOGETHER, typename Where, typename Take>
DEVICE bool collect(int twos, u32 tag, Where where, Take take) {
    for (int first = thread_index(); first < twos; first += TOGETHER * THREADS) {
        Two words[TOGETHER];
        bool is_whole = false;
        u64 begun = 0;
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
            if (first + i * THREADS < twos) take(first + i * THREADS, value_of(words[i].a), value_of(words[i].b));
    }
    return true;
}
