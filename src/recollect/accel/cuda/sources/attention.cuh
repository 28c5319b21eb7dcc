// One step of attention, a head's keys split over blocks. A partial context is its softmax-weighted mean over a split, the
// weight of that and the largest score; scores are in powers of two. Every block combines the parts itself.
//
// Constants: ROWS, HEADS, KV_HEADS, HEAD, ROTARY, SCALE; SPLITS, of a head's keys, at most
#pragma once
#include "exchange.cuh"

constexpr int QKV = (HEADS + 2 * KV_HEADS) * HEAD;
constexpr int LANES = HEAD / 8;                // lanes that share a slot: eight features each
constexpr int GROUPS = THREADS / LANES;        // slots that a block reads together
constexpr int AHEAD = 4;                       // times so many slots are requested before the query has arrived
constexpr int SHORTEST = AHEAD * GROUPS;       // slots that justify a block of their own: one more split is more for all to gather
constexpr int PART = HEAD / PACK + 2;          // words of a part: mean, weight, largest score
constexpr int COLLECTED = HEAD + 2;            // numbers of a warp's
constexpr int PARTS = ROWS * SPLITS * HEADS * PART;  // words, of one row after another, of one split after another
constexpr float NOTHING = -1e30f;              // a score below all

DEVICE int splits_of(int length) { return min(length / SHORTEST + 1, SPLITS); }  // of length + 1 slots

// Write eight features of a head, rotated by their position where positions are rotary.
DEVICE void turned(const float* from, int first, int position, float* to) {
    for (int j = 0; j < 8; j++) to[j] = from[first + j];
    if (!ROTARY) return;
    for (int j = 0; j < 8; j += 2) {
        const float angle = (float)position / powf(10000.0f, (float)(first + j) / HEAD);
        const float sine = sinf(angle), cosine = cosf(angle), even = to[j], odd = to[j + 1];
        to[j] = even * cosine - odd * sine;
        to[j + 1] = even * sine + odd * cosine;
    }
}

struct Lists {                                 // (B, S, KV_HEADS, HEAD)
    scalar *keys, *values;
    long long slots;                           // S
};

struct Item {                                  // one head of one row over one split of its keys
    int row, head, kv, split, length, begin, end;
    bool is_there, is_last;

    DEVICE Item(u32 item, const int* lengths)
        : row(item / (HEADS * SPLITS)), head(item % HEADS), kv(head / (HEADS / KV_HEADS)), split(item / HEADS % SPLITS),
          length(lengths[row]) {
        const int splits = splits_of(length), each = max(SHORTEST, (length + SPLITS - 1) / SPLITS);
        begin = min(split * each, length);
        end = min(begin + each, length);
        is_there = split < splits;
        is_last = split == splits - 1;
    }

    // Address of this lane's features of a slot.
    DEVICE long long place_of(const Lists& lists, int slot) const {
        return ((row * lists.slots + slot) * KV_HEADS + kv) * HEAD + (u32)thread_index() % LANES * 8;
    }

    // Prefetch into L2, a slot by each thread.
    DEVICE void announce(const Lists& lists) const {
        for (int base = 0; base < SHORTEST; base += THREADS) {
            const int slot = begin + base + own_index();
            if (slot >= min(end, begin + SHORTEST)) continue;
            const long long at = ((row * lists.slots + slot) * KV_HEADS + kv) * HEAD;
            for (int byte = 0; byte < HEAD * (int)sizeof(scalar); byte += 128) {
                prefetch((const char*)(lists.keys + at) + byte);
                prefetch((const char*)(lists.values + at) + byte);
            }
        }
    }
};

struct Slots {                                 // some slots, loads in flight
    Eight keys[AHEAD], values[AHEAD];

    DEVICE static int slot_at(int base, int turn) { return base + turn * GROUPS + (u32)thread_index() / LANES; }

    DEVICE void ask(const Lists& lists, const Item& item, int base) {
        const long long first = item.place_of(lists, slot_at(base, 0));
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const long long at = first + i * (GROUPS * KV_HEADS * HEAD);
            keys[i] = values[i] = Eight{};
            if (slot_at(base, i) < item.end) keys[i] = fetch_changing(lists.keys + at), values[i] = fetch_changing(lists.values + at);
        }
    }
};

struct Running {                               // a running softmax-weighted sum
    float most, weight, sum[8];

    DEVICE void fade_to(float larger) {
        const float fade = exp2_of(most - larger);
        most = larger;
        weight *= fade;
#pragma unroll
        for (int j = 0; j < 8; j++) sum[j] *= fade;
    }

    DEVICE void add(float share, const float* value) {
        weight += share;
#pragma unroll
        for (int j = 0; j < 8; j++) sum[j] += share * value[j];
    }

    // All scores first, one maximum, then the weighted sums: nothing waits for the slot before.
    DEVICE void see(const Slots& slots, const float* q, int base, int end) {
        float scores[AHEAD], larger = most;
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            float key[8];
            spread(slots.keys[i], key);
            scores[i] = 0.0f;
#pragma unroll
            for (int j = 0; j < 8; j++) scores[i] += q[j] * key[j];
        }
#pragma unroll
        for (int step = LANES / 2; step > 0; step /= 2)
#pragma unroll
            for (int i = 0; i < AHEAD; i++) scores[i] += from_lane_xor(scores[i], step);
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            scores[i] = either(Slots::slot_at(base, i) < end, scores[i], 2 * NOTHING);  // a weight of zero, below
            larger = fmaxf(larger, scores[i]);
        }
        fade_to(larger);
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            float value[8];
            spread(slots.values[i], value);
            add(exp2_of(scores[i] - larger), value);
        }
    }

    DEVICE void join_over_warp() {             // the lanes that hold the same features
        float larger = most;
#pragma unroll
        for (int step = LANES; step < 32; step *= 2) larger = fmaxf(larger, from_lane_xor(larger, step));
        fade_to(larger);
#pragma unroll
        for (int step = LANES; step < 32; step *= 2) {
            weight += from_lane_xor(weight, step);
#pragma unroll
            for (int j = 0; j < 8; j++) sum[j] += from_lane_xor(sum[j], step);
        }
    }
};

// The query of a head and, where the step attends to itself, its key and value, into shared memory.
DEVICE bool collect_head(const Item& item, const u64* qkv, u32 tag, float* heads) {
    constexpr int BY_TWOS = HEAD / PACK / 2;
    auto where = [&](u32 at) {
        const int first = at < BY_TWOS ? item.head : HEADS + item.kv + (at < 2 * BY_TWOS ? 0 : KV_HEADS);
        return qkv + (item.row * QKV + first * HEAD) / PACK + at % BY_TWOS * 2;
    };
    return collect<1>(item.is_last ? 3 * BY_TWOS : BY_TWOS, tag, where, [&](int, u32 at, u32 first, u32 second) {
        const u32 came[2] = {first, second};
        for (u32 j = 0; j < 2 * PACK; j += 2) *(float2*)(heads + 2 * PACK * at + j) = both_of(came, j);
    });
}

struct Itself {                                // the step's own key and value, eight features of each
    float key[8], value[8];

    DEVICE Itself(const Item& item, const float* heads) {
        const int first = (u32)thread_index() % LANES * 8;
        turned(heads + HEAD, first, item.length, key);
        for (int j = 0; j < 8; j++) {          // as the next step will read them; what was sent is rounded already
            if (ROTARY) key[j] = to_float(from_float(key[j]));
            value[j] = heads[2 * HEAD + first + j];
        }
    }

    DEVICE void see(const float* q, Running& running) const {
        float score = 0.0f;
        for (int j = 0; j < 8; j++) score += q[j] * key[j];
        score = over_lanes<LANES>(score);
        const bool is_mine = (u32)thread_index() / LANES == 0;
        const float larger = fmaxf(running.most, either(is_mine, score, NOTHING));
        running.fade_to(larger);
        running.add(either(is_mine, exp2_of(score - larger), 0.0f), value);
    }

    DEVICE void write_down(const Lists& lists, const Item& item) const {
        const bool is_mine = (u32)thread_index() / LANES == 0 && item.head % (HEADS / KV_HEADS) == 0;
        if (!is_mine || item.length >= lists.slots) return;
        const long long at = item.place_of(lists, item.length);
        store(lists.keys + at, key);
        store(lists.values + at, value);
    }
};

// Combine the warps' sums, and send them to all.
DEVICE void send_part(const float* collected, u64* part, u32 tag) {
    for (int base = 0; base < HEAD; base += 2 * THREADS) {
        const int h = base + 2 * own_index();
        if (h >= HEAD) continue;
        float most = NOTHING, weight = 0.0f, first = 0.0f, second = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; w++) most = fmaxf(most, collected[w * COLLECTED + HEAD + 1]);
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            const float* own = collected + w * COLLECTED;
            const float share = exp2_of(own[HEAD + 1] - most);
            weight += share * own[HEAD];
            first += share * own[h];
            second += share * own[h + 1];
        }
        const float over = weight > 0.0f ? one_over(weight) : 0.0f;
        send_both(part, h, first * over, second * over, tag);
        if (h == 0) send(part + HEAD / PACK, weight, tag), send(part + HEAD / PACK + 1, most, tag);
    }
}

// A partial context, which is sent to all.
DEVICE void attend(const Lists& lists, const Item& item, Slots slots, const float* heads, float* collected, u64* part, u32 tag) {
    const u32 lane = (u32)thread_index() % 32, first = lane % LANES * 8;
    float q[8];
    turned(heads, first, item.length, q);
    for (int j = 0; j < 8; j++) q[j] *= SCALE * 1.44269504088896f;
    Running running = {NOTHING, 0.0f, {}};
    for (int base = item.begin; base < item.end; base += SHORTEST) {
        running.see(slots, q, base, item.end);
        if (base + SHORTEST < item.end) slots.ask(lists, item, base + SHORTEST);
    }
    const Itself itself(item, heads);          // valid only in the last split
    if (item.is_last) itself.see(q, running);
    running.join_over_warp();
    float* own = collected + (u32)thread_index() / 32 * COLLECTED;
    if (lane < LANES)
        for (int j = 0; j < 8; j++) own[first + j] = running.sum[j];
    if (lane == 0) own[HEAD] = running.weight, own[HEAD + 1] = running.most;
    block_sync();
    send_part(collected, part, tag);
    if (item.is_last) itself.write_down(lists, item);
}

// Two features of a context, from the parts of a row: four splits at a time.
DEVICE float2 context_of(const u32* parts, int feature, int splits) {
    float most = NOTHING, weight = 0.0f;
    float2 sum = {0.0f, 0.0f};
    for (int base = 0; base < splits; base += 4) {
        const u32* from[4];
        float scores[4], larger = most;
#pragma unroll
        for (int i = 0; i < 4; i++) {          // the last one again, where there are fewer, with weight zero
            from[i] = parts + (min(base + i, splits - 1) * HEADS + feature / HEAD) * PART;
            scores[i] = float_of(from[i][HEAD / PACK + 1]);
            larger = fmaxf(larger, scores[i]);
        }
        const float fade = exp2_of(most - larger);
        most = larger, weight *= fade, sum.x *= fade, sum.y *= fade;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float2 mean = both_of(from[i], feature % HEAD);
            const float own = either(base + i < splits, float_of(from[i][HEAD / PACK]), 0.0f);
            const float share = exp2_of(scores[i] - larger) * own;
            weight += share, sum.x += share * mean.x, sum.y += share * mean.y;
        }
    }
    const float over = one_over(weight);
    return {sum.x * over, sum.y * over};
}

// Combine the splits of all contexts, in shared memory: words into `parts`, contexts into `vector`.
DEVICE bool gather_contexts(const u64* words, u32* parts, float* vector, const int* lengths, u32 tag) {
    constexpr int WIDE = HEADS * HEAD;
    bool came = true;
    for (int row = 0; row < ROWS; row++) {
        const int twos = splits_of(lengths[row]) * (HEADS * PART / 2), begin = row * SPLITS * HEADS * PART;
        auto where = [&](int at) { return words + begin + 2 * at; };
        auto take = [&](int, int at, u32 first, u32 second) {
            parts[begin + 2 * at] = first;
            parts[begin + 2 * at + 1] = second;
        };
        came = came && (twos <= 3 * THREADS ? collect<3>(twos, tag, where, take) : collect<6>(twos, tag, where, take));
    }
    if (!block_and(came)) return false;
#pragma unroll
    for (int base = 0; base < ROWS * WIDE; base += 2 * THREADS) {
        const u32 at = base + 2 * own_index();
        if (at >= ROWS * WIDE) continue;
        const u32 row = at / WIDE, feature = at % WIDE;
        const float2 context = context_of(parts + row * SPLITS * HEADS * PART, feature, splits_of(lengths[row]));
        *(float2*)(vector + row * padded(WIDE) + place(feature)) = context;
    }
    block_sync();
    return true;
}
