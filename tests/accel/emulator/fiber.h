// Fibers: functions that run interleaved on one thread. On x86-64 a switch is a dozen instructions; elsewhere the C library's.
#pragma once
#include <sys/mman.h>
#include <ucontext.h>

#include <cstdint>
#include <functional>

namespace emulator {

constexpr size_t STACK = 64 * 1024;

struct Fiber {
    void* stack = nullptr;
    void* pointer = nullptr;
    ucontext_t context;
    std::function<void()> body;
    ~Fiber() {
        if (stack) munmap(stack, STACK);
    }
};

#if defined(__x86_64__)
extern "C" void emulator_switch(void** from, void* to);
asm(R"(
.text
.weak emulator_switch
emulator_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");

inline Fiber*& starting() {
    static Fiber* fiber;
    return fiber;
}

inline void enter_fiber() { starting()->body(); }

inline void switch_fiber(Fiber& from, Fiber& to) {
    starting() = &to;  // only a fiber's first turn reads it
    emulator_switch(&from.pointer, to.pointer);
}

inline void start_fiber(Fiber& fiber, std::function<void()> body) {
    fiber.body = std::move(body);
    fiber.stack = mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void** top = (void**)((char*)fiber.stack + STACK) - 1;  // where a call would have left it
    *--top = (void*)enter_fiber;
    for (int i = 0; i < 6; ++i) *--top = nullptr;
    fiber.pointer = top;
}
#else
inline void enter_fiber(unsigned low, unsigned high) { ((Fiber*)((uintptr_t)high << 32 | low))->body(); }

inline void switch_fiber(Fiber& from, Fiber& to) { swapcontext(&from.context, &to.context); }

inline void start_fiber(Fiber& fiber, std::function<void()> body) {
    fiber.body = std::move(body);
    fiber.stack = mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack, fiber.context.uc_stack.ss_size = STACK;
    const uintptr_t self = (uintptr_t)&fiber;
    makecontext(&fiber.context, (void (*)())enter_fiber, 2, (unsigned)self, (unsigned)(self >> 32));
}
#endif

}  // namespace emulator
