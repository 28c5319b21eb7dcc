// What kernels ask of the device, in PTX; under EMULATED the same of a CPU, so that they can be tested anywhere.
#pragma once

#ifdef EMULATED
#include "emulated.h"
#else

#define DEVICE __device__ __forceinline__

constexpr long long PATIENCE = 2000000000ll;  // nanoseconds that a block waits for the others

// Counters that all blocks of a grid see.
DEVICE unsigned long long add_release(unsigned long long* at, unsigned long long count) {
    unsigned long long before;
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
    asm volatile("atom.add.release.gpu.global.u64 %0, [%1], %2;" : "=l"(before) : "l"(at), "l"(count) : "memory");
    return before;
}

DEVICE unsigned long long load_acquire(const unsigned long long* at) {
    unsigned long long found;
    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(found) : "l"(at) : "memory");
    return found;
}

// What another block wrote before the last meeting: never from this multiprocessor's own cache.
DEVICE float load_shared_by_all(const float* at) {
    float found;
    asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(found) : "l"(at) : "memory");
    return found;
}

DEVICE long long clock_now() {  // nanoseconds
    long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

DEVICE void relax() {}

DEVICE void add_shared(unsigned int* at) { atomicAdd(at, 1u); }
DEVICE void min_shared(int* at, int value) { atomicMin(at, value); }
DEVICE void max_shared(int* at, int value) { atomicMax(at, value); }

DEVICE float shuffle_xor(float value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }

struct alignas(16) Words { unsigned int a, b, c, d; };

DEVICE Words load_once(const void* at) {  // weights: read once a step, by one warp
    Words w;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w.a), "=r"(w.b), "=r"(w.c), "=r"(w.d) : "l"(at));
    return w;
}

DEVICE Words load_words(const void* at) {
    Words w;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w.a), "=r"(w.b), "=r"(w.c), "=r"(w.d) : "l"(at) : "memory");
    return w;
}

DEVICE float as_float(unsigned int bits) { return __uint_as_float(bits); }
DEVICE unsigned int as_bits(float value) { return __float_as_uint(value); }

DEVICE float half_to_float(unsigned short bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

DEVICE unsigned short float_to_half(float value) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

#endif

// ---- numbers as they are stored ----------------------------------------------------------------------------------

#if SCALAR == 0
typedef float scalar;
DEVICE float to_float(scalar value) { return value; }
DEVICE scalar from_float(float value) { return value; }
#elif SCALAR == 1
struct scalar { unsigned short bits; };  // bfloat16
DEVICE float to_float(scalar value) { return as_float((unsigned int)value.bits << 16); }
DEVICE scalar from_float(float value) {  // to the nearest, ties to even
    const unsigned int bits = as_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return {(unsigned short)0x7fff};
    return {(unsigned short)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}
#else
struct scalar { unsigned short bits; };  // half
DEVICE float to_float(scalar value) { return half_to_float(value.bits); }
DEVICE scalar from_float(float value) { return {float_to_half(value)}; }
#endif

struct Raw { Words part[sizeof(scalar) / 2]; };  // eight numbers

DEVICE Raw fetch(const scalar* at) {
    Raw raw;
    for (int i = 0; i < (int)sizeof(scalar) / 2; i++) raw.part[i] = load_once((const char*)at + 16 * i);
    return raw;
}

DEVICE Raw fetch_changing(const scalar* at) {
    Raw raw;
    for (int i = 0; i < (int)sizeof(scalar) / 2; i++) raw.part[i] = load_words((const char*)at + 16 * i);
    return raw;
}

DEVICE void widen(const Raw& raw, float* values) {
    const unsigned int* words = (const unsigned int*)&raw;
#pragma unroll
    for (int i = 0; i < 8; i++) {
#if SCALAR == 0
        values[i] = as_float(words[i]);
#else
        values[i] = to_float({(unsigned short)(i % 2 ? words[i / 2] >> 16 : words[i / 2] & 0xffffu)});
#endif
    }
}

// ---- vectors and rows --------------------------------------------------------------------------------------------

// A vector in shared memory: groups of eight, their halves apart, so that a warp reads without conflicts.
DEVICE int place(int feature) {
    const int group = feature / 8, in_group = feature % 8;
    return (group / 32) * 256 + (in_group / 4) * 128 + (group % 32) * 4 + in_group % 4;
}

constexpr int padded(int size) { return (size + 255) / 256 * 256; }

// Add w · x for eight features: w as it came from memory, x laid out by `place`.
DEVICE void add_product(float& sum, const float* w, const float* x, int group) {
    const float* mine = x + (group / 32) * 256 + (group % 32) * 4;
#pragma unroll
    for (int j = 0; j < 4; j++) sum += w[j] * mine[j] + w[4 + j] * mine[128 + j];
}

DEVICE float over_warp(float value) {
    for (int step = 16; step > 0; step /= 2) value += shuffle_xor(value, step);
    return value;
}

DEVICE float value_at(const scalar* vector, int at) { return vector ? to_float(vector[at]) : 0.0f; }
