// A CUDA grid on a CPU, for tests: every block is a thread of the system, every one of its threads a fibre. Fibres take
// turns where they wait for one another; shared memory is the system thread's own. Slow, but it finds wrong indices,
// missing meetings and unequal numbers of them.
#pragma once

#include <sched.h>
#include <ucontext.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

using std::min;

#define __device__
#define __global__
#define __launch_bounds__(...)
#define __shared__ static thread_local
#define DEVICE static inline

namespace emulated {

struct Place { unsigned int x, y, z; };

struct Fibre {
    ucontext_t context;
    Place thread;
    bool is_done;
    std::vector<char> stack;
};

struct Meeting { int arrived = 0; unsigned int turn = 0; };

struct Block {
    std::vector<Fibre> fibres;
    ucontext_t outside;
    Place index, threads, blocks;
    int current = 0, living = 0;
    Meeting all;
    std::vector<Meeting> warps;
    std::vector<float> passed;
    std::function<void()>* body = nullptr;
};

inline thread_local Block* block = nullptr;

inline void next() {  // let another fibre go on
    Fibre& mine = block->fibres[block->current];
    const int count = (int)block->fibres.size();
    for (int i = 1; i <= count; i++) {
        const int other = (block->current + i) % count;
        if (block->fibres[other].is_done) continue;
        if (other == block->current) return;
        block->current = other;
        swapcontext(&mine.context, &block->fibres[other].context);
        return;
    }
}

inline void meet(Meeting& meeting, int wanted) {
    const unsigned int turn = meeting.turn;
    if (++meeting.arrived == wanted) {
        meeting.arrived = 0;
        meeting.turn++;
    }
    while (meeting.turn == turn) next();
}

inline void run_fibre() {
    (*block->body)();
    Fibre& mine = block->fibres[block->current];
    mine.is_done = true;
    if (--block->living == 0) swapcontext(&mine.context, &block->outside);
    next();
}

inline void run_block(Place index, Place blocks, int threads, std::function<void()> body) {
    Block mine;
    block = &mine;
    mine.index = index;
    mine.blocks = blocks;
    mine.threads = {(unsigned int)threads, 1, 1};
    mine.living = threads;
    mine.warps.resize((threads + 31) / 32);
    mine.passed.resize(threads);
    mine.body = &body;
    mine.fibres.resize(threads);
    for (int t = 0; t < threads; t++) {
        Fibre& fibre = mine.fibres[t];
        fibre.thread = {(unsigned int)t, 0, 0};
        fibre.is_done = false;
        fibre.stack.resize(1 << 16);
        getcontext(&fibre.context);
        fibre.context.uc_stack.ss_sp = fibre.stack.data();
        fibre.context.uc_stack.ss_size = fibre.stack.size();
        fibre.context.uc_link = nullptr;
        makecontext(&fibre.context, run_fibre, 0);
    }
    swapcontext(&mine.outside, &mine.fibres[0].context);
    block = nullptr;
}

template <typename Body>
void launch(int blocks, int threads, Body body) {
    std::vector<std::thread> running;
    for (int b = 0; b < blocks; b++)
        running.emplace_back([=] { run_block({(unsigned int)b, 0, 0}, {(unsigned int)blocks, 1, 1}, threads, body); });
    for (auto& thread : running) thread.join();
}

}  // namespace emulated

#define threadIdx (emulated::block->fibres[emulated::block->current].thread)
#define blockIdx (emulated::block->index)
#define blockDim (emulated::block->threads)
#define gridDim (emulated::block->blocks)

DEVICE void __syncthreads() { emulated::meet(emulated::block->all, (int)blockDim.x); }

DEVICE unsigned long long add_release(unsigned long long* at, unsigned long long count) {
    return __atomic_fetch_add(at, count, __ATOMIC_SEQ_CST);
}

DEVICE unsigned long long load_acquire(const unsigned long long* at) { return __atomic_load_n(at, __ATOMIC_SEQ_CST); }

DEVICE float load_shared_by_all(const float* at) { return *(const volatile float*)at; }

DEVICE long long clock_now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

DEVICE void relax() {
    emulated::next();
    sched_yield();
}

DEVICE void add_shared(unsigned int* at) { *at += 1; }

DEVICE void min_shared(int* at, int value) { *at = value < *at ? value : *at; }

DEVICE void max_shared(int* at, int value) { *at = value > *at ? value : *at; }

DEVICE float shuffle_xor(float value, int mask) {
    emulated::Block* block = emulated::block;
    const int mine = (int)threadIdx.x;
    emulated::Meeting& warp = block->warps[mine / 32];
    block->passed[mine] = value;
    emulated::meet(warp, 32);
    const float found = block->passed[mine ^ mask];
    emulated::meet(warp, 32);
    return found;
}

constexpr long long PATIENCE = 60000000000ll;  // a CPU is slow

struct alignas(16) Words { unsigned int a, b, c, d; };

DEVICE Words load_words(const void* at) {
    if ((unsigned long long)at % 16) std::abort();  // the device would refuse it
    Words words;
    std::memcpy(&words, at, 16);
    return words;
}

DEVICE Words load_once(const void* at) { return load_words(at); }

DEVICE float as_float(unsigned int bits) {
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

DEVICE unsigned int as_bits(float value) {
    unsigned int bits;
    std::memcpy(&bits, &value, 4);
    return bits;
}

DEVICE float half_to_float(unsigned short bits) {
    _Float16 half;
    std::memcpy(&half, &bits, 2);
    return (float)half;
}

DEVICE unsigned short float_to_half(float value) {
    const _Float16 half = (_Float16)value;
    unsigned short bits;
    std::memcpy(&bits, &half, 2);
    return bits;
}
