// Two sums in one word, for the transfer to the block that adds them up: 8 bits for a shared exponent, and 12 bits each.
// The larger is exact to 2^-11 of itself, the smaller to as much of the larger; bf16, in which the gradients are then
// stored, has 2^-9. What is not finite, or above 2^114, arrives as NaN.
//
// Adding 1.5 · 2^(e + 13) to a number below 2^(e + 1) leaves its first 12 bits, rounded, at the end of the sum; they
// count from 0x800, so that no sign is needed.
#pragma once
#include "hardware.cuh"

constexpr u32 EXPONENT = 0x7f800000, HALFWAY = 0x400000, ZERO = 0x800, TWELVE = 0xfff;

DEVICE u32 pack_pair(float a, float b) {
    const u32 first = bits_of(a) & 0x7fffffff, second = bits_of(b) & 0x7fffffff;
    const u32 larger = first > second ? first : second;
    const u32 raised = ((larger + 0x1000) & 0xff800000) + (13u << 23);  // 0x1000: what would be rounded up to 2^(e + 1)
    const u32 exponent = raised < EXPONENT ? raised : EXPONENT;
    const float unit = float_of(exponent | HALFWAY | ZERO);
    return exponent << 1 | (bits_of(a + unit) & TWELVE) << 12 | (bits_of(b + unit) & TWELVE);
}

DEVICE float2 unpack_pair(u32 word) {
    const u32 base = (word >> 1 & EXPONENT) | HALFWAY;
    const float unit = float_of(base | ZERO);
    return {float_of(base | (word >> 12 & TWELVE)) - unit, float_of(base | (word & TWELVE)) - unit};
}
