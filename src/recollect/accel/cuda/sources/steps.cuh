// Common to the single-step kernels: elements as they are stored, vectors in shared memory, rows of weights.
// SCALAR 0 float, 1 bfloat16, 2 half
#pragma once
#define HALF (SCALAR == 2)
#include "hardware.cuh"

#if SCALAR == 0
typedef float scalar;
DEVICE float to_float(scalar value) { return value; }
DEVICE scalar from_float(float value) { return value; }
#else
struct scalar { u16 bits; };
DEVICE float to_float(scalar value) { return widen(value.bits); }
DEVICE scalar from_float(float value) { return {narrow(value)}; }
#endif

DEVICE float value_at(const scalar* vector, int at) { return vector ? to_float(vector[at]) : 0.0f; }

DEVICE scalar scalar_at(const scalar* vector, int at) { return vector ? vector[at] : from_float(0.0f); }

struct Eight { Sixteen part[sizeof(scalar) / 2]; };  // eight elements

DEVICE Eight fetch(const scalar* at) {             // weights: read once a step, by one warp
    Eight eight;
    for (int i = 0; i < (int)sizeof(scalar) / 2; i++) eight.part[i] = load_once((const char*)at + 16 * i);
    return eight;
}

DEVICE Eight fetch_changing(const scalar* at) {
    Eight eight;
    for (int i = 0; i < (int)sizeof(scalar) / 2; i++) eight.part[i] = load_words((const char*)at + 16 * i);
    return eight;
}

DEVICE void spread(const Eight& eight, float* values) {
    const u32* words = (const u32*)&eight;
#pragma unroll
    for (int i = 0; i < 8; i++) {
#if SCALAR == 0
        values[i] = float_of(words[i]);
#else
        values[i] = widen((u16)(words[i / 2] >> 16 * (i % 2)));
#endif
    }
}

DEVICE void store(scalar* at, const float* values) {  // eight elements, sixteen bytes at a time
#if SCALAR == 0
    for (int i = 0; i < 8; i += 4) *(float4*)(at + i) = make_float4(values[i], values[i + 1], values[i + 2], values[i + 3]);
#else
    float words[4];
    for (int i = 0; i < 4; i++) words[i] = float_of(narrow_pair(values[2 * i], values[2 * i + 1]));
    *(float4*)at = make_float4(words[0], words[1], words[2], words[3]);
#endif
}

// A vector in shared memory: groups of eight, their halves apart, so that a warp reads without conflicts. Unsigned, so
// that what is known of an index at compile time need not be computed.
DEVICE u32 place(u32 feature) {
    const u32 group = feature / 8, in_group = feature % 8;
    return (group / 32) * 256 + (in_group / 4) * 128 + (group % 32) * 4 + in_group % 4;
}

DEVICE constexpr int padded(int size) { return (size + 255) / 256 * 256; }

// Add w · x for eight features: w as it came from memory, x laid out by `place`. In separate sums first, which do not
// depend on each other.
DEVICE void add_product(float& sum, const float* w, const float* x, u32 group) {
    const float* mine = x + (group / 32) * 256 + (group % 32) * 4;
    float low = 0.0f, high = 0.0f;
#pragma unroll
    for (int j = 0; j < 4; j++) low += w[j] * mine[j], high += w[4 + j] * mine[128 + j];
    sum += low + high;
}

template <int LANES>
DEVICE float over_lanes(float value) {             // the sum over neighbouring lanes
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2) value += from_lane_xor(value, step);
    return value;
}
