// A Hopper chip on one CPU thread, as far as the recurrent kernels need one: every CUDA thread is a fiber, which runs until
// it waits. What the chip does asynchronously (bulk copies, stores into other blocks, tensor cores) happens late and in a
// drawn order, so that a kernel which does not wait for it reads NaN. The order of plain stores to memory is kept: a
// missing fence is not found here.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

#include "fiber.h"

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
#define DEVICE inline
#define ASSUME(known) ((void)0)
#define __align__(n)
struct float2 { float x, y; };
struct float4 { float x, y, z, w; };
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

namespace emulator {

constexpr u32 RANK_SHIFT = 20;  // an address in a cluster: rank, then offset

struct Barrier {
    int arrivals = 0, pending = 0, phase = 0;
    long bytes = 0;
    void settle() {
        if (pending == 0 && bytes == 0) phase ^= 1, pending = arrivals;
    }
};

struct Product {  // one wgmma as one thread issued it
    float* to;
    u32 a[4];
    u64 b;
    bool adds;
    int group;  // by which it was committed, -1 as long as it was not
    u64 laid;  // where a is, if not in registers
};

struct Meeting {  // threads that wait for each other
    int arrived = 0, turn = 0;
};

struct Block;
struct Thread {
    Fiber fiber;
    Block* block;
    int index;
    bool done = false;
    u64 traded = 0;
    std::vector<Product> products;
    int groups = 0;  // of wgmmas, committed so far
};

struct Cluster {
    std::vector<Block*> blocks;
    Meeting meeting;
    int threads = 0;
};

struct Block {
    int index, rank;
    u64 asleep = 0;  // until this round
    Cluster* cluster;
    std::vector<u8> memory;
    std::vector<std::unique_ptr<Thread>> threads;
    Meeting meeting;
    bool refused = false, agreed = false;  // the argument of block_and, and its result
    std::vector<Meeting> warps, warpgroups;
};

struct Late {
    u64 due;
    std::function<void()> act;
};

struct Draw {  // Marsaglia's xorshift
    typedef u32 result_type;
    u32 state;
    static constexpr u32 min() { return 0; }
    static constexpr u32 max() { return ~0u; }
    u32 operator()() { return state ^= state << 13, state ^= state >> 17, state ^= state << 5; }
};

struct Chip {
    std::vector<std::unique_ptr<Block>> blocks;
    std::vector<std::unique_ptr<Cluster>> clusters;
    std::vector<Late> late;
    Draw draw;
    u64 rounds = 0;
    bool silent = false;  // block 1 sends nothing
    Thread* now = nullptr;
    Fiber home;
    bool in_fiber = false;
    const char* fault = nullptr;
};

inline Chip* chip = nullptr;

inline void give_way() { switch_fiber(chip->now->fiber, chip->home); }
inline void later(std::function<void()> act) { chip->late.push_back({chip->rounds + 1 + chip->draw() % 7, std::move(act)}); }

inline void meet(Meeting& meeting, int count, const std::function<void()>& last = nullptr) {
    const int turn = meeting.turn;
    if (++meeting.arrived == count) {
        if (last) last();
        meeting.arrived = 0, ++meeting.turn;
        return;
    }
    while (meeting.turn == turn) give_way();
}

// A thread that does what it may not stops here, and the chip with it.
inline void broken(const char* what) {
    chip->fault = what;
    if (!chip->in_fiber) throw std::runtime_error(what);
    for (;;) give_way();
}

inline u8* at(Block* block, u32 address, u32 bytes) {
    Block* there = block->cluster->blocks.at(address >> RANK_SHIFT);
    const u32 offset = address & ((1u << RANK_SHIFT) - 1);
    if (offset + bytes > there->memory.size()) broken("an address beyond shared memory");
    return there->memory.data() + offset;
}

inline Barrier& barrier_at(Block* block, u32 address);

}  // namespace emulator

#define KERNEL(threads) extern "C" void
#define SHARED_MEMORY(name) u8* name = emulator::chip->now->block->memory.data()

inline int thread_index() { return emulator::chip->now->index; }
inline u32 of_warp(u32 value) { return value; }
inline int grid_size() { return (int)emulator::chip->blocks.size(); }
inline int block_index() { return emulator::chip->now->block->index; }
inline void block_sync() {
    auto* block = emulator::chip->now->block;
    emulator::meet(block->meeting, block->threads.size());
}
inline void cluster_sync() {
    auto* cluster = emulator::chip->now->block->cluster;
    emulator::meet(cluster->meeting, cluster->threads);
}
inline void warp_sync() {
    auto* thread = emulator::chip->now;
    emulator::meet(thread->block->warps[thread->index / 32], 32);
}
inline float either(bool yes, float a, float b) { return yes ? a : b; }
template <class T>
inline T from_lane_xor(T value, int mask) {
    auto* thread = emulator::chip->now;
    std::memcpy(&thread->traded, &value, sizeof(T));
    warp_sync();
    T other;
    std::memcpy(&other, &thread->block->threads[thread->index ^ mask]->traded, sizeof(T));
    warp_sync();
    return other;
}
inline void hold(int) {}
inline u64 nanoseconds() { return emulator::chip->rounds * 100000; }

// --- numbers -----------------------------------------------------------------------------------------------------
inline float float_of(u32 bits) {
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}
inline u32 bits_of(float value) {
    u32 bits;
    std::memcpy(&bits, &value, 4);
    return bits;
}
#if TF32
typedef float Number;
inline float narrow(float value) { return value; }
inline float widen(float value) { return value; }
inline float factor(float value) {  // to ten bits of mantissa, half away from zero
    return std::isfinite(value) ? float_of((bits_of(value) + 0x1000) & ~0x1fffu) : value;
}
#else
typedef u16 Number;
#if HALF
inline u16 narrow(float value) {
    _Float16 half = (_Float16)value;
    u16 bits;
    std::memcpy(&bits, &half, 2);
    return bits;
}
inline float widen(u16 bits) {
    _Float16 half;
    std::memcpy(&half, &bits, 2);
    return (float)half;
}
#else
inline u16 narrow(float value) {
    const u32 bits = bits_of(value);
    return std::isnan(value) ? 0x7fff : (u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline float widen(u16 bits) { return float_of((u32)bits << 16); }
#endif
inline Number factor(float value) { return narrow(value); }
inline u32 narrow_pair(float low, float high) { return narrow(low) | (u32)narrow(high) << 16; }
#endif
inline float exp2_of(float x) { return std::exp2(x); }
inline float tanh_of(float x) { return std::tanh(x); }
inline float one_over_root(float x) { return 1.0f / std::sqrt(x); }
inline float one_over(float x) { return 1.0f / x; }

// --- other blocks ------------------------------------------------------------------------------------------------
inline u32 look(const u32* word) {
    emulator::give_way();
    return *word;
}
inline bool is_mute() { return emulator::chip->silent && block_index() == 1; }
inline void raise(u32* counter) { *counter += !is_mute(); }
inline u32 peek(const u32* word) { return *word; }
inline void tell(u32* word) { *word = 1; }

inline void prefetch(const void* from) { *(volatile const u8*)from; }  // must at least be there

inline u32 shared_address(const void* pointer) {
    auto* block = emulator::chip->now->block;
    return (u32)((const u8*)pointer - block->memory.data()) | (u32)block->rank << emulator::RANK_SHIFT;
}
inline u32 address_in(u32 address, int rank) {
    return (address & ((1u << emulator::RANK_SHIFT) - 1)) | (u32)rank << emulator::RANK_SHIFT;
}
inline void fence_for_products() {}
inline void fence_for_copies() {}

// A barrier's state does not fit in its 8 bytes: they hold a pointer, which proves that it was initialised.
inline emulator::Barrier& emulator::barrier_at(Block* block, u32 address) {
    Barrier* barrier;
    std::memcpy(&barrier, at(block, address, 8), 8);
    if (address % 8 || (u64)barrier == ~0ull) broken("a barrier that was not initialised");
    return *barrier;
}
inline void barrier_init(u32 barrier, u32 arrivals) {
    auto* made = new emulator::Barrier;  // few, and gone with the process
    made->arrivals = made->pending = (int)arrivals;
    std::memcpy(emulator::at(emulator::chip->now->block, barrier, 8), &made, 8);
}
inline void barrier_init_fence() {}
inline void barrier_expect(u32 barrier, u32 bytes) {
    auto& b = emulator::barrier_at(emulator::chip->now->block, barrier);
    if (b.pending == 0) emulator::broken("one arrival too many");
    b.bytes += bytes, --b.pending;
    b.settle();
}
inline bool barrier_passed(u32 barrier, u32 parity) {
    if (emulator::barrier_at(emulator::chip->now->block, barrier).phase != (int)parity) return true;
    emulator::give_way();
    return false;
}
inline void copy_bulk(u32 to, const void* from, u32 bytes, u32 barrier) {
    auto* block = emulator::chip->now->block;
    if (to % 16 || (u64)from % 16 || bytes % 16) emulator::broken("a bulk copy off its 16 bytes");
    emulator::later([=] {
        std::memcpy(emulator::at(block, to, bytes), from, bytes);
        auto& b = emulator::barrier_at(block, barrier);
        b.bytes -= bytes;
        b.settle();
    });
}
inline void store_words_async(u32 to, const u32* from, int count, u32 barrier) {
    auto* block = emulator::chip->now->block;
    if (to % (4 * count)) emulator::broken("a store off its bytes");
    if (is_mute()) return;
    const std::vector<u32> words(from, from + count);
    emulator::later([=] {
        std::memcpy(emulator::at(block, to, 4 * count), words.data(), 4 * count);
        auto& there = emulator::barrier_at(block, barrier);
        there.bytes -= 4 * count;
        there.settle();
    });
}
inline void store_async(u32 to, const u32* four, u32 barrier) { store_words_async(to, four, 4, barrier); }
inline void store_async_two(u32 to, const u32* two, u32 barrier) { store_words_async(to, two, 2, barrier); }

// --- tensor cores --------------------------------------------------------------------------------------------------
inline u64 describe(u32 address, int rows = ROWS) {
    const u32 offset = address & ((1u << emulator::RANK_SHIFT) - 1);
    return (u64)((offset >> 4) & 0x3fff) | (u64)rows << 16 | (u64)(128 >> 4) << 32;
}
inline void settle(float&) {}
inline void wgmma_fence() {}
inline void wgmma_commit() {
    auto* thread = emulator::chip->now;
    for (auto& product : thread->products)
        if (product.group < 0) product.group = thread->groups;
    ++thread->groups;
}
inline void wgmma(float* d, const u32* a, u64 b, bool adds) {
    emulator::chip->now->products.push_back({d, {a[0], a[1], a[2], a[3]}, b, adds, -1, 0});
    if (!adds)
        for (int i = 0; i < ROWS / 2; ++i) d[i] = NAN;  // until it is waited for
}
inline void wgmma_laid(float* d, u64 a, u64 b, bool adds) {
    const u32 none[4] = {};
    wgmma(d, none, b, adds);
    emulator::chip->now->products.back().laid = a;
}

namespace emulator {

constexpr int NEAR = 16 / sizeof(Number), K = 2 * NEAR;  // adjacent elements, elements of k

// What the tensor cores read of a register: two elements of two bytes, or one of four. They would silently truncate the
// last bits of that one; here that is a fault.
inline float taken(u32 bits, int which) {
#if TF32
    if (bits & 0x1fff && std::isfinite(float_of(bits))) broken("a factor that was not rounded to tf32");
    return float_of(bits);
#else
    return ::widen((u16)(bits >> 16 * which));
#endif
}

// Copies what is in shared memory as core matrices of 8 rows x 16 bytes: to[k * rows + row].
inline void read_matrix(Block* block, u64 description, int rows, float* to) {
    const u32 start = (description & 0x3fff) << 4, size = sizeof(Number);
    const u32 along_k = (description >> 16 & 0x3fff) << 4, along_rows = (description >> 32 & 0x3fff) << 4;
    for (int k = 0; k < K; ++k)
        for (int row = 0; row < rows; ++row) {
            u32 bits = 0;
            const u32 address = start + k / NEAR * along_k + row / 8 * along_rows + row % 8 * 16 + k % NEAR * size;
            std::memcpy(&bits, at(block, address | (u32)block->rank << RANK_SHIFT, size), size);
            to[k * rows + row] = taken(bits, 0);
        }
}

// Do the i-th wgmma that the 128 threads of a warpgroup have issued.
inline void multiply(Block* block, int warpgroup, size_t i) {
    static float a[K][64], b[K][ROWS];
    const Product& first = block->threads[warpgroup * 128]->products[i];
    read_matrix(block, first.b, ROWS, &b[0][0]);
    if (first.laid) read_matrix(block, first.laid, 64, &a[0][0]);
    for (int t = 0; t < 128; ++t) {
        const auto& product = block->threads[warpgroup * 128 + t]->products[i];
        if (product.b != first.b || product.laid != first.laid || product.group != first.group)
            broken("threads that ask wgmma for different things");
        for (int r = 0; r < 4 && !first.laid; ++r)
            for (int e = 0; e < NEAR / 4; ++e)
                a[t % 4 * (NEAR / 4) + r / 2 * NEAR + e][t / 32 * 16 + t % 32 / 4 + r % 2 * 8] = taken(product.a[r], e);
    }
    for (int t = 0; t < 128; ++t) {
        const auto& product = block->threads[warpgroup * 128 + t]->products[i];
        for (int j = 0; j < ROWS / 8; ++j)
            for (int r = 0; r < 4; ++r) {
                const int row = t / 32 * 16 + t % 32 / 4 + r / 2 * 8, column = j * 8 + t % 4 * 2 + r % 2;
                float sum = product.adds ? product.to[j * 4 + r] : 0.0f;
                for (int k = 0; k < K; ++k) sum += a[k][row] * b[k][column];
                product.to[j * 4 + r] = sum;
            }
    }
}

// Do all that was committed but for the last groups, of which so many are left. What nobody committed is never done.
inline void run_products(Block* block, int warpgroup, int left) {
    const Thread& first = *block->threads[warpgroup * 128];
    size_t count = 0;
    while (count < first.products.size() && first.products[count].group >= 0 &&
           first.products[count].group < first.groups - left)
        multiply(block, warpgroup, count++);
    for (int t = 0; t < 128; ++t) {
        auto& products = block->threads[warpgroup * 128 + t]->products;
        products.erase(products.begin(), products.begin() + count);
    }
}

inline void run_late() {
    std::vector<Late> due, rest;
    for (auto& late : chip->late) (late.due <= chip->rounds ? due : rest).push_back(std::move(late));
    chip->late = std::move(rest);
    std::shuffle(due.begin(), due.end(), chip->draw);
    for (auto& late : due) late.act();
}

inline void build(Chip& made, int grid, int cluster, int threads, int shared, const std::function<void()>& kernel) {
    for (int i = 0; i < grid; ++i) {
        if (i % cluster == 0) made.clusters.push_back(std::make_unique<Cluster>());
        auto block = std::make_unique<Block>();
        block->index = i, block->rank = i % cluster, block->cluster = made.clusters.back().get();
        block->memory.assign(shared, 0xff);  // NaN, whatever reads it
        block->warps.resize(threads / 32), block->warpgroups.resize(threads / 128);
        block->cluster->blocks.push_back(block.get());
        block->cluster->threads += threads;
        for (int t = 0; t < threads; ++t) {
            auto thread = std::make_unique<Thread>();
            thread->block = block.get(), thread->index = t;
            Thread* own = thread.get();
            start_fiber(thread->fiber, [own, kernel] {
                kernel();
                own->done = true;
                for (;;) give_way();
            });
            block->threads.push_back(std::move(thread));
        }
        made.blocks.push_back(std::move(block));
    }
}

// Run a grid to its end: 0; 1 where it stands still, 2 where something was left over, 3 where a thread did what it may not. Blocks run interleaved, in a drawn order.
inline int run(int grid, int cluster, int threads, int shared, u32 seed, bool silent,
               const std::function<void()>& kernel) {
    Chip made;
    chip = &made;
    made.silent = silent;
    made.draw.state = seed * 2654435761u + 1;
    build(made, grid, cluster, threads, shared, kernel);
    std::vector<Block*> order;
    for (auto& block : made.blocks) order.push_back(block.get());
    for (bool busy = true; busy; ++made.rounds) {
        busy = false;
        if (made.rounds > 2000000) return 1;
        if (made.fault) return 3;
        std::shuffle(order.begin(), order.end(), made.draw);
        for (Block* block : order) {
            if (made.draw() % 16 == 0) block->asleep = made.rounds + made.draw() % 64;  // no block may rely on another's pace
            for (auto& thread : block->threads) {
                if (thread->done) continue;
                busy = true;
                if (block->asleep > made.rounds) break;
                made.now = thread.get(), made.in_fiber = true;
                switch_fiber(made.home, thread->fiber);
                made.in_fiber = false;
            }
        }
        try {
            run_late();
        } catch (const std::runtime_error&) {
            return 3;
        }
    }
    chip = nullptr;
    return made.late.empty() ? 0 : 2;
}

}  // namespace emulator

inline void wgmma_wait(int left = 0) {
    auto* thread = emulator::chip->now;
    const int warpgroup = thread->index / 128;
    emulator::meet(thread->block->warpgroups[warpgroup], 128,
                   [&] { emulator::run_products(thread->block, warpgroup, left); });
}

// --- single steps --------------------------------------------------------------------------------------------------
inline bool block_and(bool yes) {
    auto* block = emulator::chip->now->block;
    block->refused |= !yes;
    emulator::meet(block->meeting, block->threads.size(), [&] { block->agreed = !block->refused, block->refused = false; });
    return block->agreed;
}
inline void send_bits(u64* to, u32 bits, u32 tag) {  // late, and in any order
    if (!is_mute()) emulator::later([=] { *to = (u64)tag << 32 | bits; });
}
inline void send(u64* to, float value, u32 tag) { send_bits(to, bits_of(value), tag); }
struct Two { u64 a, b; };
inline Two look_at_two(const u64* at) {
    if ((u64)at % 16) emulator::broken("a look off its 16 bytes");
    emulator::give_way();
    return {at[0], at[1]};
}
inline void prefetch_bulk(const void* from, u32 bytes) {
    if ((u64)from % 16 || bytes % 16) emulator::broken("a prefetch off its 16 bytes");
    prefetch(from), prefetch((const u8*)from + bytes - 1);
}

struct alignas(16) Sixteen { u32 a, b, c, d; };
inline Sixteen load_words(const void* at) {
    if ((u64)at % 16) emulator::broken("a load off its 16 bytes");
    Sixteen words;
    std::memcpy(&words, at, 16);
    return words;
}
inline Sixteen load_once(const void* at) { return load_words(at); }
inline void add_shared(u32* to) { *to += 1; }
inline void min_shared(int* to, int value) { *to = std::min(*to, value); }
inline void max_shared(int* to, int value) { *to = std::max(*to, value); }
using std::max;
using std::min;
