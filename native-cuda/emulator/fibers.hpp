// The threads of a block as fibers of one operating system thread: each runs until it waits for its warp or its block, or ends.
#pragma once

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>

#if !defined(__x86_64__)
#error "the emulator switches fibers on x86-64 only"
#endif

// Saves the callee-saved registers and the stack pointer of the running fiber, and goes on with another: by a jump, for processors expect
// a return to go where the last call came from.
extern "C" __attribute__((visibility("hidden"))) void fiber_switch(void** save, void* stack_pointer);
asm(R"(
.text
.type fiber_switch, @function
fiber_switch:
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
    popq %rcx
    jmpq *%rcx
.size fiber_switch, . - fiber_switch
)");

namespace fibers {

constexpr unsigned MAX_THREADS = 1024;
constexpr unsigned WARP = 32;
constexpr size_t STACK_BYTES = 64 << 10;

enum class At : unsigned char { READY, WARP, BLOCK, END };

struct Fiber {
    At at;
    // Lanes of the warp that a fiber at WARP waits for, and what it shows them.
    unsigned mask;
    unsigned shown;
    void* stack_pointer;
    char* stack;
};

static Fiber all[MAX_THREADS];
// What each fiber showed in the last collective it was released from. The others read it before any of them comes to the next.
static unsigned seen[MAX_THREADS];
static unsigned count;
static unsigned current;
static void* scheduler;
static void (*body)();
static char* free_stacks[MAX_THREADS];
static unsigned n_free_stacks;

[[noreturn]] static void fail(const char* what) {
    fprintf(stderr, "emulated kernel: thread %u: %s\n", current, what);
    abort();
}

static void to_scheduler(At at) {
    all[current].at = at;
    asm volatile("" ::: "memory");
    fiber_switch(&all[current].stack_pointer, scheduler);
    asm volatile("" ::: "memory");
}

static void start() {
    body();
    to_scheduler(At::END);
    fail("went on after its end");
}

static char* take_stack() {
    if (n_free_stacks > 0) {
        return free_stacks[--n_free_stacks];
    }
    void* stack = mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED) {
        fail("no memory for its stack");
    }
    return static_cast<char*>(stack);
}

// A fiber has a stack from its first instruction to its end.
static void resume(unsigned i) {
    Fiber& fiber = all[i];
    current = i;
    if (fiber.stack == nullptr) {
        fiber.stack = take_stack();
        // Six registers, then the return address, which lies at a multiple of 16. Neighbours' are in different lines of the caches.
        void** top = reinterpret_cast<void**>(fiber.stack + STACK_BYTES - 32 - i % 32 * 1216);
        top[0] = reinterpret_cast<void*>(start);
        fiber.stack_pointer = top - 6;
    }
    asm volatile("" ::: "memory");
    fiber_switch(&scheduler, fiber.stack_pointer);
    asm volatile("" ::: "memory");
    if (fiber.at == At::END) {
        free_stacks[n_free_stacks++] = fiber.stack;
        fiber.stack = nullptr;
    }
}

// Whether every lane that fiber `i` waits for has come to the same collective.
static bool is_met(unsigned i) {
    unsigned first = i / WARP * WARP;
    for (unsigned lane = 0; lane < WARP && first + lane < count; lane++) {
        const Fiber& other = all[first + lane];
        if ((all[i].mask >> lane & 1) != 0 && (other.at != At::WARP || other.mask != all[i].mask)) {
            return false;
        }
    }
    return true;
}

// Makes ready whom a collective of the warp has brought together; says whether there are any.
static bool release(unsigned first, unsigned end) {
    bool released = false;
    for (unsigned i = first; i < end; i++) {
        if (all[i].at == At::WARP && is_met(i)) {
            unsigned mask = all[i].mask;
            for (unsigned j = i; j < end; j++) {
                if ((mask >> (j - first) & 1) != 0) {
                    all[j].at = At::READY;
                    seen[j] = all[j].shown;
                }
            }
            released = true;
        }
    }
    return released;
}

// Runs a warp until all of it stands at the block's barrier or has ended.
static void run_warp(unsigned first) {
    unsigned end = first + WARP < count ? first + WARP : count;
    do {
        for (unsigned i = first; i < end; i++) {
            if (all[i].at == At::READY) {
                resume(i);
            }
        }
    } while (release(first, end));
    for (unsigned i = first; i < end; i++) {
        if (all[i].at == At::WARP) {
            current = i;
            fail("waits for lanes of its warp that do not come");
        }
    }
}

// Runs `thread_body` in `threads` threads.
static void run_block(unsigned threads, void (*thread_body)()) {
    count = threads;
    body = thread_body;
    for (unsigned i = 0; i < threads; i++) {
        all[i] = Fiber{At::READY, 0, 0, nullptr, nullptr};
    }
    unsigned waiting;
    do {
        for (unsigned first = 0; first < threads; first += WARP) {
            run_warp(first);
        }
        waiting = 0;
        for (unsigned i = 0; i < threads; i++) {
            if (all[i].at == At::BLOCK) {
                all[i].at = At::READY;
                waiting++;
            }
        }
        if (waiting != 0 && waiting != threads) {
            fail("a barrier that not all threads reach");
        }
    } while (waiting != 0);
}

} // namespace fibers
