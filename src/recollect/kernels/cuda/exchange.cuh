// Values that blocks tell each other within a launch. Each goes with a tag, in one word of 64 bits that is written and
// read whole (NCCL's LL protocol): a reader looks at the word itself until the tag is the one it waits for, which takes
// one way through the second-level cache, where a counter beside the values takes three.
#pragma once
#include "products.cuh"

constexpr u64 PATIENCE = 2000000000ull;        // nanoseconds

DEVICE float value_of(u64 word) { return float_of((u32)word); }
DEVICE bool has_tag(const Two& words, u32 tag) { return (u32)(words.a >> 32) == tag && (u32)(words.b >> 32) == tag; }

// Look until both words have the tag; false: they did not come. The clock is looked at now and then, as that takes longer.
DEVICE bool wait_for(Two& words, const u64* at, u32 tag) {
    u64 begun = 0;
    for (u32 tries = 1; !has_tag(words, tag); tries++) {
        if (tries % 64 == 0) {
            const u64 now = nanoseconds();
            if (begun == 0) begun = now;
            if (now - begun > PATIENCE) return false;
        }
        words = look_at_two(at);
    }
    return true;
}

// Take words by twos, from `where(i)` for each i: `take(i, first, second)`. All threads of a block; many looks are on their
// way at a time. False: some did not come.
template <int TOGETHER, typename Where, typename Take>
DEVICE bool collect(int twos, u32 tag, Where where, Take take) {
    bool came = true;
    for (int first = thread_index(); first < twos; first += TOGETHER * THREADS) {
        Two words[TOGETHER];
#pragma unroll
        for (int i = 0; i < TOGETHER; i++)
            if (first + i * THREADS < twos) words[i] = look_at_two(where(first + i * THREADS));
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            const int at = first + i * THREADS;
            if (at >= twos) continue;
            came = came && wait_for(words[i], where(at), tag);
            take(at, value_of(words[i].a), value_of(words[i].b));
        }
    }
    return came;
}
