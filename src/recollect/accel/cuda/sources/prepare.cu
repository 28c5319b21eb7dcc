// All inputs of a time loop, in one launch: W_hh packed as its threads hold it, W_ih, the biases and h_0, c_0 as it reads
// them, x time-major, and zeros to exchange through. The readable form is packed_weights.py, bit for bit.
#include "chores.cuh"

constexpr int SENT = CELL == 0 ? 4 : CELL == 1 ? 3 : 1;  // gates of a unit in W_hh
constexpr int FOLD = TF32 ? 2 : 1, PAIR = 2 / FOLD;      // tiles of k in sixteen units; elements of a word

struct Source {
    const void* data;  // null: not given
    u64 is_float;      // else in the dtype of the matmuls
};

struct Prepare {
    Source x, h, c, w_ih, w_hh, b_ih, b_hh;
    Number* by_time;                          // (T, B, D), from x (B, T, D)
    Number* slotted;                          // (H, SLOTS, D), from W_ih (G·H, D)
    Number* packed;                           // from W_hh (G·H, H)
    float *bias, *first_h, *first_c;          // (H, SLOTS), (B, H), (B, H)
    Sixteen* zeros;
    u64 step_stride, row_stride, zero_count;  // of x; of 16-byte words
    int steps, batch, width, units;           // width: D; units: H
    int parts, wide, deep, depth, high, laid, cluster, span;  // 16-byte words of W_hh packed; a plan's; units of a cluster
};

DEVICE float wide_at(const Source& from, u64 at) {
    return from.is_float ? ((const float*)from.data)[at] : widen(((const Number*)from.data)[at]);
}
DEVICE Number factor_at(const Source& from, u64 at) {
    return from.is_float ? factor(((const float*)from.data)[at]) : ((const Number*)from.data)[at];
}

#if TF32  // where all inputs are float32
DEVICE u32 factor_of(u32 bits) { return bits_of(factor(float_of(bits))); }
DEVICE Sixteen factors(const Sixteen& four) {
    return {factor_of(four.a), factor_of(four.b), factor_of(four.c), factor_of(four.d)};
}
DEVICE void copy_whole(Sixteen* to, const Sixteen* from, bool) {
    for (int i = 0; i < 2; ++i) to[i] = factors(from[i]);
}
#else
DEVICE u32 pair_of(u32 first, u32 second) { return narrow(float_of(first)) | (u32)narrow(float_of(second)) << 16; }
DEVICE Sixteen narrowed(const Sixteen& low, const Sixteen& high) {
    return {pair_of(low.a, low.b), pair_of(low.c, low.d), pair_of(high.a, high.b), pair_of(high.c, high.d)};
}
DEVICE void copy_whole(Sixteen* to, const Sixteen* from, bool is_float) {
    *to = is_float ? narrowed(from[0], from[1]) : from[0];
}
#endif

// Up to eight elements of a row, sixteen bytes at once where they are aligned.
DEVICE void copy_eight(Number* to, const Source& from, u64 at, int count) {
    const Sixteen* there = (const Sixteen*)((const u8*)from.data + at * (from.is_float ? 4 : 2));
    if (count >= 8 && is_whole(to) && is_whole(there)) {
        copy_whole((Sixteen*)to, there, from.is_float);
    } else {
        for (int i = 0; i < count && i < 8; ++i) to[i] = factor_at(from, at + i);
    }
}

DEVICE Number weight_at(const Prepare& a, int gate, int unit, int k) {
    const bool real = gate >= 0 && unit < a.units && k < a.units;
    return real ? factor_at(a.w_hh, ((u64)gate * a.units + unit) * a.units + k) : (Number)0;
}

#if TF32
DEVICE u32 word_of(float value) { return bits_of(value); }
#else
DEVICE u32 word_of(u16 value) { return value; }
#endif

struct Tile {  // which, of W_hh packed
    int block, deep, wide, high, number;
};

// An element of a tile: row 16 warp + 8 eight + quad, one of its k.
DEVICE Number number_of(const Prepare& a, const Tile& tile, int warp, int eight, int quad, int k) {
#if BACKWARD
    const int of = ((tile.wide * a.high + tile.high) * 4 + warp) * 16 + eight * 8 + quad;  // a unit of the cluster
    const int at = (tile.block % a.cluster * a.deep + tile.deep) * a.depth + tile.number;
    const int sent = at / FOLD;  // sixteen units and a gate
    const int to = of < a.span ? tile.block / a.cluster * a.span + of : a.units;
    return weight_at(a, sent % SENT, sent / SENT * 16 + at % FOLD * 8 + k, to);
#else
    const int unit = ((tile.block * a.wide + tile.wide) * 4 + warp) * 4 + quad / 2;
    const int from = (tile.deep * a.depth + tile.number) * (16 / FOLD) + k;
    return weight_at(a, hidden_gate(eight * 2 + quad % 2), unit, from);
#endif
}

// What one thread of a time loop holds of one tile: eight halves, of half the tile's k, of eight of its rows, of a pair. In
// tf32 an element takes the place of a pair; and the last tiles are in shared memory, where sixteen bytes have a row's k.
DEVICE void pack(const Prepare& a, int part) {
    const int pair = part % 4, quad = part / 4 % 8, warp = part / 32 % 4;
    int rest = part / 128;
    Tile tile;
    tile.number = rest % a.depth;
    tile.high = (rest /= a.depth) % a.high;
    tile.wide = (rest /= a.high) % a.wide;
    tile.deep = (rest /= a.wide) % a.deep;
    tile.block = rest / a.deep;
    const bool is_laid = TF32 && tile.number >= a.depth - a.laid;
    u32 words[4];
    for (int half = 0; half < 2; ++half) {
        for (int eight = 0; eight < 2; ++eight) {
            u32 both = 0;
            for (int which = 0; which < PAIR; ++which) {
                const int k = (half * 4 + pair) * PAIR + which, other = part / 64 % 2 * 4 + half * 2 + eight;
                const Number value = is_laid ? number_of(a, tile, part / 16 % 4, part / 8 % 2, part % 8, other)
                                             : number_of(a, tile, warp, eight, quad, k);
                both |= word_of(value) << 16 * which;
            }
            words[half * 2 + eight] = both;
        }
    }
    ((Sixteen*)a.packed)[part] = {words[0], words[1], words[2], words[3]};
}

DEVICE void slot_input(const Prepare& a, u32 row, int column) {
    const int gate = input_gate(row % SLOTS);
    Number* to = a.slotted + (u64)row * a.width + column;
    if (gate >= 0) {
        const u64 from = ((u64)gate * a.units + row / SLOTS) * a.width + column;
        copy_eight(to, a.w_ih, from, a.width - column);
    } else {
        for (int i = 0; i < 8 && column + i < a.width; ++i) to[i] = 0;
    }
}

DEVICE float bias_at(const Source& from, int gate, int unit, int units) {
    return gate < 0 ? 0.0f : wide_at(from, gate * units + unit);
}

KERNEL(THREADS) prepare(const Prepare a) {
    share(a.zero_count, [&](u32 i) { a.zeros[i] = {0, 0, 0, 0}; });
    share(a.parts, [&](u32 i) { pack(a, i); });
    const u32 eights = (a.width + 7) / 8, states = a.batch * a.units;
    if (a.slotted) share(eights * a.units * SLOTS, [&](u32 i) { slot_input(a, i / eights, i % eights * 8); });
    if (a.by_time)
        share(eights * a.steps * a.batch, [&](u32 i) {
            const u32 row = i / eights, column = i % eights * 8;  // row: of a step
            const u64 from = row / a.batch * a.step_stride + row % a.batch * a.row_stride + column;
            copy_eight(a.by_time + (u64)row * a.width + column, a.x, from, a.width - column);
        });
    if (a.bias)
        share(a.units * SLOTS, [&](u32 i) {
            const int unit = i / SLOTS;
            const int slot = i % SLOTS;
            const float from_x = bias_at(a.b_ih, input_gate(slot), unit, a.units);
            a.bias[i] = from_x + bias_at(a.b_hh, hidden_gate(slot), unit, a.units);
        });
    if (a.first_h) share(states, [&](u32 i) { a.first_h[i] = a.h.data ? wide_at(a.h, i) : 0.0f; });
    if (a.first_c) share(states, [&](u32 i) { a.first_c[i] = a.c.data ? wide_at(a.c, i) : 0.0f; });
}
