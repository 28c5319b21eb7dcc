// Common to the small kernels before and after a time loop: how threads divide the work, and which gate is in which slot.
//
// The host sets CELL, HALF and TF32 as for the loops, BACKWARD: 1 for the backward loop, and THREADS, those of a block.
#pragma once
#define ROWS 8  // of matmuls, which are not computed here
#include "hardware.cuh"

constexpr int SLOTS = CELL < 2 ? 4 : 1;

// Every thread of the grid does its part of `count` items. They are counted in 32 bits, since indices are divided by
// numbers that are not known at compile time: items are groups of eight, of which no chip holds that many.
template <class Work>
DEVICE void share(u32 count, Work work) {
    const u32 all = grid_size() * THREADS;
    for (u32 i = block_index() * THREADS + thread_index(); i < count; i += all) work(i);
}

// The gate in a slot, -1 for none: those of the GRU's candidate are separate.
DEVICE int input_gate(int slot) { return CELL == 1 && slot == 3 ? -1 : slot; }
DEVICE int hidden_gate(int slot) {
    if (CELL == 1) return slot == 2 ? -1 : slot == 3 ? 2 : slot;
    return slot < SLOTS ? slot : -1;
}

DEVICE bool is_whole(const void* at) { return (u64)at % 16 == 0; }
