// What the forward and the backward walk share: sizes, activations, and waits that end.
//
// The host sets, for each plan:
//   CELL        0 LSTM, 1 GRU (reset after), 2 RNN with tanh, 3 RNN with relu
//   HALF        0 bf16, 1 fp16
//   ROWS        batch rows of a group, 8, 16, 32 or 64: the columns of every product
//   BLOCKS      blocks of a group; each owns UNITS hidden units
//   CLUSTER     blocks of a cluster
//   THROUGH_L2  1: blocks exchange through the second-level cache, 0: a group is one cluster and exchanges inside it
//   WIDE, DEEP  warpgroups that split the product's rows, and its depth k
//   CHUNKS      pieces in which a warpgroup awaits its share of k; PER_CHUNK blocks fill one
//   TAGGED      1: what goes through the cache says itself whether it is new, 0: counters say it
#pragma once
#include "hardware.cuh"

constexpr int SLOTS = CELL < 2 ? 4 : 1;  // values of a unit that the input gives, in memory one beside the other
constexpr int COLUMN_TILES = ROWS / 8;
constexpr int TILE_BYTES = ROWS * 32;  // 16 of k for all rows
constexpr int WARPGROUPS = WIDE * DEEP, THREADS = WARPGROUPS * 128;
constexpr int COUNTER_GAP = 32;  // words between counters, so that each has its own line
constexpr int AHEAD = 4;  // steps after the next one whose values are brought near
constexpr u64 PATIENCE = 4000000000;  // nanoseconds after which a wait gives up

DEVICE float sigmoid(float x) { return one_over(1.0f + exp2_of(-1.44269504f * x)); }
DEVICE float hyperbolic(float x) { return 1.0f - 2.0f * one_over(1.0f + exp2_of(2.88539008f * x)); }

// One unit's slots as they lie in memory. They are taken apart where they are used, not where they are loaded: the first use
// waits for the load.
struct Words {
#if CELL < 2
    u64 all;
#else
    u16 all;
#endif
    DEVICE float at(int slot) const { return widen((u16)(all >> 16 * slot)); }
};
DEVICE Words load_words(const u16* from) {
    Words words;
    words.all = *(const decltype(words.all)*)from;
    return words;
}
DEVICE void store_words(u16* to, const float* values) {
    Words words = Words();
    for (int s = 0; s < SLOTS; ++s) words.all |= (decltype(words.all))narrow(values[s]) << 16 * s;
    *(decltype(words.all)*)to = words.all;
}

// Where element k of a row lies in the layout that products read.
DEVICE u32 place(u32 k, u32 row) { return (k / 8 * ROWS + row) * 8 + k % 8; }

// A wait that takes too long gives up: it says so, and from then on this thread waits for nothing. All threads still walk
// to the end, so that no barrier is left short; what they write is rubbish, and the host raises.
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

// The weights of this thread, for as long as the kernel runs: tiles of 64 x 16, in the order of wgmma's fragments.
template <int COUNT>
DEVICE void load_weights(u32 (*weights)[4], const u16* packed, int block) {
    const int warpgroup = thread_index() / 128, thread = thread_index() % 128;
    const u32* from = (const u32*)packed + ((u64)(block * WARPGROUPS + warpgroup) * COUNT * 128 + thread) * 4;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
#pragma unroll
        for (int r = 0; r < 4; ++r) weights[i][r] = from[i * 512 + r];
    }
}

// How many blocks fill a chunk: the last ones may lie beyond the group.
DEVICE u32 fillers(int chunk) {
    const int first = chunk * PER_CHUNK, last = first + PER_CHUNK;
    return (last < BLOCKS ? last : BLOCKS) - (first < BLOCKS ? first : BLOCKS);
}

#if TAGGED
// --- Exchange without counters -----------------------------------------------------------------------------------
// A fence, a counter and a look at it cost three ways to the cache and back. Instead, one bit in each word of four values
// changes whenever the word is written anew; a reader asks again until it has. The bit is BIT of the first value: 14, the
// highest of the exponent, where no value reaches 2 (it is never set then), else 0, the last of the mantissa, and that
// value is rounded to one bit less.

DEVICE u32 tag_of(int use) { return (use + 1) % 2; }  // memory begins as zeros: the first use is 1

template <int BIT>
DEVICE u64 tagged(u64 four, u32 tag) {
    u32 first = (u32)four & 0xffff;
    if (BIT == 0) first += first >> 1 & 1;  // to nearest, ties to even
    first = (first & (0xffff & ~(1u << BIT))) | tag << BIT;
    return (four & ~0xffffull) | first;
}

// Four lanes, APART from each other, hold one value each: all get the four, in the lanes' order.
template <int APART>
DEVICE u64 four_lanes(u16 value, int lane) {
    const bool second = lane & APART, later = lane & 2 * APART;
    const u32 mine = value, other = from_lane_xor(mine, APART);
    const u32 pair = choose(second, other, mine) | choose(second, mine, other) << 16, across = from_lane_xor(pair, 2 * APART);
    return (u64)choose(later, pair, across) << 32 | choose(later, across, pair);
}

// What one thread of a warpgroup carries of a chunk from the cache to shared memory.
template <int BIT, int BYTES>
struct Carried {
    static constexpr int COUNT = (BYTES / 16 + 127) / 128;
    u64 words[COUNT][2];

    DEVICE static bool fresh(const u64* pair, u32 tag) {
        return ((pair[0] >> BIT & 1) == tag) && ((pair[1] >> BIT & 1) == tag);
    }
    // Only what `filled` bytes hold is ever written; the rest of the chunk is zero.
    DEVICE void ask(const u8* chunk, int thread, int filled) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const int at = (i * 128 + thread) * 16;
            words[i][0] = words[i][1] = 0;
            if (at < filled) load_pair(words[i], (const u64*)(chunk + at));
        }
    }
    DEVICE bool stale(int i, int thread, int filled, u32 tag) const {
        return (i * 128 + thread) * 16 < filled && !fresh(words[i], tag);
    }
    DEVICE void await(Guard& guard, const u8* chunk, int thread, int filled, u32 tag) {
        bool again = false;
        guard.until([&] {
#pragma unroll
            for (int i = 0; i < COUNT; ++i)  // all that is stale is asked for before any of it is looked at
                if (again && stale(i, thread, filled, tag))
                    load_pair(words[i], (const u64*)(chunk + (i * 128 + thread) * 16));
            again = true;
            bool all = true;
#pragma unroll
            for (int i = 0; i < COUNT; ++i) all = all && !stale(i, thread, filled, tag);
            return all;
        });
    }
    DEVICE void put(u8* to, int thread) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const int at = (i * 128 + thread) * 16;
            if (at >= BYTES) continue;
            const u64 clear = ~(1ull << BIT);
            *(ulonglong2*)(to + at) = make_ulonglong2(words[i][0] & clear, words[i][1] & clear);
        }
    }
};

// Bring chunk after chunk to shared memory; `use(i)` runs when chunk i is there. The next chunk is asked for after the fence,
// which would wait for it, and comes while this one is used.
template <int BIT, int BYTES, class Use>
DEVICE void carry(Guard& guard, const u8* from, u8* to, int first_chunk, u32 tag, int warpgroup, int thread, Use use) {
    constexpr int PER_BLOCK = BYTES / PER_CHUNK;
    Carried<BIT, BYTES> carried;
    carried.ask(from, thread, fillers(first_chunk) * PER_BLOCK);
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i) {
        carried.await(guard, from + i * BYTES, thread, fillers(first_chunk + i) * PER_BLOCK, tag);
        carried.put(to + i * BYTES, thread);
        fence_for_products();
        if (i + 1 < CHUNKS) carried.ask(from + (i + 1) * BYTES, thread, fillers(first_chunk + i + 1) * PER_BLOCK);
        warpgroup_sync(warpgroup);
        use(i);
    }
}
#endif
