// Gradients of weights and biases from the order of slots into torch's, in the dtype of the parameters; the backward loop's
// sums for each pair of rows are added up here, in an order that depends on nothing but their number.
#include "chores.cuh"

constexpr int WARPS = THREADS / 32;
constexpr int WHOLE = TF32 ? 2 : 1;  // 16-byte words in eight elements

struct Target {
    void* data;  // null: not needed
    u64 is_float;
};

struct Product {
    const void* data;
    u64 is_float;  // summed chunk by chunk; else in the dtype of the matmuls
};

struct Finish {
    Product product_ih, product_hh;      // (H, SLOTS, D), (H, SLOTS, H)
    const float* sums;                   // (pairs, H, SLOTS)
    Target w_ih, w_hh, b_ih, b_hh;       // (G·H, D), (G·H, H), (G·H,), (G·H,)
    int pairs, width, units;
};

DEVICE void store(const Target& to, u64 at, float value) {
    if (to.is_float)
        ((float*)to.data)[at] = value;
    else
        ((Number*)to.data)[at] = narrow(value);
}

DEVICE float wide_at(const Product& from, u64 at) {
    return from.is_float ? ((const float*)from.data)[at] : widen(((const Number*)from.data)[at]);
}

// Up to eight elements of a row, sixteen bytes at once where they are aligned.
DEVICE void copy_eight(const Target& to, u64 at, const Product& from, u64 from_at, int count) {
    Number* there = (Number*)to.data + at;
    const Number* here = (const Number*)from.data + from_at;
    if ((TF32 || (!to.is_float && !from.is_float)) && count >= 8 && is_whole(there) && is_whole(here)) {
        for (int i = 0; i < WHOLE; ++i) ((Sixteen*)there)[i] = ((const Sixteen*)here)[i];
    } else {
        for (int i = 0; i < count && i < 8; ++i) store(to, at + i, wide_at(from, from_at + i));
    }
}

template <class Gate>
DEVICE void order(const Target& to, const Product& from, int width, int units, Gate gate_of) {
    const u32 eights = (width + 7) / 8;
    if (!to.data) return;
    share(eights * units * SLOTS, [&](u32 i) {
        const u32 row = i / eights, column = i % eights * 8;
        const int gate = gate_of(row % SLOTS);
        if (gate >= 0)
            copy_eight(to, ((u64)gate * units + row / SLOTS) * width + column, from, (u64)row * width + column,
                       width - column);
    });
}

// A block sums 32 elements over the pairs, each warp its part of these.
DEVICE void sum(const Finish& a, float (*parts)[32]) {
    const int lane = thread_index() % 32, warp = thread_index() / 32, all = a.units * SLOTS;
    for (int first = block_index() * 32; first < all; first += grid_size() * 32) {
        const int at = first + lane;
        float total = 0.0f;
        for (int pair = warp; pair < a.pairs && at < all; pair += WARPS) total += a.sums[(u64)pair * all + at];
        parts[warp][lane] = total;
        block_sync();
        if (warp == 0 && at < all) {
            for (int other = 1; other < WARPS; ++other) total += parts[other][lane];
            const int input = input_gate(at % SLOTS), hidden = hidden_gate(at % SLOTS);
            if (a.b_ih.data && input >= 0) store(a.b_ih, input * a.units + at / SLOTS, total);
            if (a.b_hh.data && hidden >= 0) store(a.b_hh, hidden * a.units + at / SLOTS, total);
        }
        block_sync();
    }
}

KERNEL(THREADS) finish(const Finish a) {
    SHARED_MEMORY(memory);
    order(a.w_ih, a.product_ih, a.width, a.units, [](int slot) { return input_gate(slot); });
    order(a.w_hh, a.product_hh, a.units, a.units, [](int slot) { return hidden_gate(slot); });
    if (a.b_ih.data || a.b_hh.data) sum(a, (float(*)[32])memory);
}
