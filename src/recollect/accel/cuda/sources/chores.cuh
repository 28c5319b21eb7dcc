// What the small kernels before and after a walk share: how threads divide the work, and which gate lies in which slot.
//
// The host sets CELL, HALF and TF32 as for the walks, BACKWARD: 1 for the walk back, and THREADS, those of a block.
#pragma once
#define ROWS 8  // of products, which are not made here
#include "hardware.cuh"

constexpr int SLOTS = CELL < 2 ? 4 : 1;

// Every thread of the grid does its share of so many things. They are counted in 32 bits, since numbers are divided by
// others that are not known when compiling: rows of eight, of which no chip holds that many.
template <class Work>
DEVICE void share(u32 count, Work work) {
    const u32 all = grid_size() * THREADS;
    for (u32 i = block_index() * THREADS + thread_index(); i < count; i += all) work(i);
}

// The gate in a slot, -1 for none: those of the GRU's candidate lie apart.
DEVICE int input_gate(int slot) { return CELL == 1 && slot == 3 ? -1 : slot; }
DEVICE int hidden_gate(int slot) {
    if (CELL == 1) return slot == 2 ? -1 : slot == 3 ? 2 : slot;
    return slot < SLOTS ? slot : -1;
}

DEVICE bool is_whole(const void* at) { return (u64)at % 16 == 0; }
