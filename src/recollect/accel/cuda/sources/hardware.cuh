// What the kernels need of a Hopper chip, by name. Each function is one instruction, or few; a second set, which runs on a
// CPU, is in the tests. No other file holds assembly, and none needs a header of CUDA's.
#pragma once
#ifdef RECOLLECT_EMULATED
#include "emulator.h"
#else

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
#define DEVICE __device__ __forceinline__
#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads, 1)
#define SHARED_MEMORY(name) extern __shared__ __align__(128) u8 name[]

#define ASSUME(known) __builtin_assume(known)  // what the compiler cannot know
DEVICE int thread_index() { return threadIdx.x; }
// A value that is the same in all lanes, and known to be: descriptors are then made once for a warp.
DEVICE u32 of_warp(u32 value) { return __shfl_sync(0xffffffffu, value, 0); }
DEVICE int block_index() { return blockIdx.x; }
DEVICE int grid_size() { return gridDim.x; }
DEVICE void block_sync() { __syncthreads(); }
DEVICE bool block_and(bool yes) { return __syncthreads_and(yes); }
DEVICE void warp_sync() { __syncwarp(); }
template <class T>
DEVICE T from_lane_xor(T value, int mask) {
    return __shfl_xor_sync(0xffffffffu, value, mask);
}
// yes ? a : b, never by a branch: lanes that exchange values must stay converged, or each exchange takes hundreds of clocks.
DEVICE float either(bool yes, float a, float b) {
    float chosen;
    asm("{ .reg .pred p; setp.ne.b32 p, %3, 0; selp.f32 %0, %1, %2, p; }" : "=f"(chosen) : "f"(a), "f"(b), "r"((int)yes));
    return chosen;
}
DEVICE void hold(int clocks) {
    const long long begun = clock64();
    while (clock64() - begun < clocks) {}
}
DEVICE u64 nanoseconds() {
    u64 now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

// --- numbers -----------------------------------------------------------------------------------------------------
// A Number is an element of a tensor: two bytes, or a float32. `factor` is what matmuls read of it.
#if TF32
#define DEPTH_NAME "k8"
#define NARROW_NAME "tf32"
#define HOW_IT_LIES "1, 1"
typedef float Number;
DEVICE float narrow(float value) { return value; }
DEVICE float widen(float value) { return value; }
DEVICE float factor(float value) {  // the tensor cores would truncate the last 13 bits
    u32 bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
    return __uint_as_float(bits);
}
#else
#define DEPTH_NAME "k16"
#define HOW_IT_LIES "1, 1, 0"
typedef u16 Number;
#if HALF
#define NARROW_NAME "f16"
DEVICE u16 narrow(float value) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
DEVICE float widen(u16 bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}
DEVICE u32 narrow_pair(float low, float high) {
    u32 bits;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}
#else
#define NARROW_NAME "bf16"
DEVICE u16 narrow(float value) {
    u16 bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
DEVICE float widen(u16 bits) { return __uint_as_float((u32)bits << 16); }
DEVICE u32 narrow_pair(float low, float high) {
    u32 bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}
#endif
DEVICE Number factor(float value) { return narrow(value); }
#endif
DEVICE float exp2_of(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEVICE float tanh_of(float x) {
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEVICE float one_over_root(float x) {
    float y;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEVICE float one_over(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// --- other blocks, through the L2 cache ----------------------------------------------------------------------------
DEVICE u32 look(const u32* word) {  // acquire: what was written before the raise is visible after it
    u32 value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}
DEVICE void raise(u32* counter) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}
DEVICE u32 peek(const u32* word) {
    u32 value;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}
// A value and its tag in one word: a reader sees both or neither.
DEVICE void send_bits(u64* to, u32 bits, u32 tag) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"((u64)tag << 32 | bits) : "memory");
}
DEVICE void send(u64* to, float value, u32 tag) { send_bits(to, __float_as_uint(value), tag); }
struct Two { u64 a, b; };
DEVICE Two look_at_two(const u64* at) {  // each word is atomic; many loads can be in flight at once
    Two words;
    asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(words.a), "=l"(words.b) : "l"(at));
    return words;
}
DEVICE void tell(u32* word) { asm volatile("st.relaxed.sys.global.u32 [%0], 1;" ::"l"(word) : "memory"); }

// Prefetch into L2: nothing waits for it, not even a fence.
DEVICE void prefetch(const void* from) { asm volatile("prefetch.global.L2 [%0];" ::"l"(from)); }
DEVICE void prefetch_bulk(const void* from, u32 bytes) {  // a multiple of 16
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#else
    for (u32 at = 0; at < bytes; at += 128) prefetch((const char*)from + at);
#endif
}

// Sixteen bytes at a time.
struct alignas(16) Sixteen { u32 a, b, c, d; };
DEVICE Sixteen load_once(const void* at) {  // what is read once and never changes
    Sixteen w;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w.a), "=r"(w.b), "=r"(w.c), "=r"(w.d)
                 : "l"(at));
    return w;
}
DEVICE Sixteen load_words(const void* at) {
    Sixteen w;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w.a), "=r"(w.b), "=r"(w.c), "=r"(w.d)
                 : "l"(at)
                 : "memory");
    return w;
}

// --- shared memory, the cluster's too ------------------------------------------------------------------------------
DEVICE u32 shared_address(const void* pointer) { return (u32)__cvta_generic_to_shared(pointer); }
DEVICE u32 address_in(u32 address, int rank) {  // the same address in another block of the cluster
    u32 there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}
DEVICE void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory");
}
// Make plain stores visible to wgmma and to bulk copies, which use the async proxy.
DEVICE void fence_for_products() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
DEVICE void fence_for_copies() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

DEVICE void barrier_init(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
DEVICE void barrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEVICE void barrier_expect(u32 barrier, u32 bytes) {  // arrive, and let the phase end when so many bytes have arrived
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
DEVICE bool barrier_passed(u32 barrier, u32 parity) {
    u32 passed;
    asm volatile(
        "{ .reg .pred p;"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;"
        "selp.u32 %0, 1, 0, p; }"
        : "=r"(passed)
        : "r"(barrier), "r"(parity)
        : "memory");
    return passed;
}
DEVICE void copy_bulk(u32 to, const void* from, u32 bytes, u32 barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from),
        "r"(bytes), "r"(barrier)
        : "memory");
}
DEVICE void store_async(u32 to, const u32* four, u32 barrier) {  // 16 bytes into a block of the cluster
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
                 "r"(four[0]), "r"(four[1]), "r"(four[2]), "r"(four[3]), "r"(barrier)
                 : "memory");
}
DEVICE void store_async_two(u32 to, const u32* two, u32 barrier) {  // 8 bytes
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(to), "r"(two[0]),
                 "r"(two[1]), "r"(barrier)
                 : "memory");
}
DEVICE u32 bits_of(float value) { return __float_as_uint(value); }
DEVICE float float_of(u32 bits) { return __uint_as_float(bits); }
DEVICE void add_shared(u32* to) { atomicAdd(to, 1u); }
DEVICE void min_shared(int* to, int value) { atomicMin(to, value); }
DEVICE void max_shared(int* to, int value) { atomicMax(to, value); }

// --- tensor cores --------------------------------------------------------------------------------------------------
// B is in shared memory as [k / 8][row][k % 8], in tf32 [k / 4][row][k % 4]: core matrices of 8 rows x 16 bytes, 128 bytes
// apart along the rows and rows * 16 bytes apart along k. So is A where it does not come from registers, with 64 rows.
DEVICE u64 describe(u32 address, int rows = ROWS) {
    return (u64)((address >> 4) & 0x3fff) | (u64)rows << 16 | (u64)(128 >> 4) << 32;
}
DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
DEVICE void wgmma_wait(int left = 0) {  // until one group or none is left; known at compile time
    if (left == 0) asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    if (left == 1) asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
}

// Tells the compiler that values which wgmma writes asynchronously are not read before this.
DEVICE void settle(float& value) { asm volatile("" : "+f"(value)::"memory"); }

// d (64, ROWS) = a (64, 16) b (16, ROWS), in tf32 8 instead of 16, added to d where `adds`; a comes from registers, or by
// its description as b does. SUMS, A_AND_B, ADDS: how the instruction names its operands.
#if ROWS == 8
#define SUMS "%0, %1, %2, %3"
#define INTO(d) "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
#define A_AND_B "{%4, %5, %6, %7}, %8"
#define ADDS "%9"
#define BOTH_LAID "%4, %5"
#define ADDS_LAID "%6"
#elif ROWS == 16
#define SUMS "%0, %1, %2, %3, %4, %5, %6, %7"
#define INTO(d) "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
#define A_AND_B "{%8, %9, %10, %11}, %12"
#define ADDS "%13"
#define BOTH_LAID "%8, %9"
#define ADDS_LAID "%10"
#elif ROWS == 24
#define SUMS "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11"
#define INTO(d) \
    "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), \
    "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11])
#define A_AND_B "{%12, %13, %14, %15}, %16"
#define ADDS "%17"
#define BOTH_LAID "%12, %13"
#define ADDS_LAID "%14"
#elif ROWS == 32
#define SUMS "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define INTO(d) \
    "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), \
    "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
#define A_AND_B "{%16, %17, %18, %19}, %20"
#define ADDS "%21"
#define BOTH_LAID "%16, %17"
#define ADDS_LAID "%18"
#elif ROWS == 64
#define SUMS "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define INTO(d) \
    "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), \
    "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), \
    "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), \
    "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define A_AND_B "{%32, %33, %34, %35}, %36"
#define ADDS "%37"
#define BOTH_LAID "%32, %33"
#define ADDS_LAID "%34"
#endif
#ifdef SUMS
#define TEXT(rows) #rows
#define WGMMA(rows) "wgmma.mma_async.sync.aligned.m64n" TEXT(rows) DEPTH_NAME ".f32." NARROW_NAME "." NARROW_NAME " "
DEVICE void wgmma(float* d, const u32* a, u64 b, bool adds) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, " ADDS ", 0;" WGMMA(ROWS) "{" SUMS "}, " A_AND_B ", p, " HOW_IT_LIES "; }"
                 : INTO(d)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)adds)
                 : "memory");
}
#if TF32
DEVICE void wgmma_laid(float* d, u64 a, u64 b, bool adds) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, " ADDS_LAID ", 0;" WGMMA(ROWS) "{" SUMS "}, " BOTH_LAID ", p, 1, 1; }"
                 : INTO(d)
                 : "l"(a), "l"(b), "r"((int)adds)
                 : "memory");
}
#endif
#endif
#endif
