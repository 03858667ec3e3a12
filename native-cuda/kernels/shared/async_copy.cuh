// Copies from global to shared memory that go on beside the thread's work, and the shared memory whose size the launch gives.
#pragma once

// `shared_memory`, of `bytes` bytes, at a multiple of 16. The host reads `shared_bytes` from the module.
#ifdef EMULATED
#define DYNAMIC_SHARED(bytes) static uint4 shared_memory[(bytes) / 16]
#else
#define DYNAMIC_SHARED(bytes)                             \
    extern "C" __device__ unsigned shared_bytes = (bytes); \
    extern __shared__ uint4 shared_memory[]
#endif

// A place in shared memory as the instructions below take it.
__device__ inline unsigned shared_address(const void* at) {
#ifdef EMULATED
    (void)at;
    return 0;
#else
    return (unsigned)__cvta_generic_to_shared(at);
#endif
}

// Begins to copy BYTES (4, 8 or 16) bytes; both sides lie at multiples of that. What several blocks read again goes through L1.
template <unsigned BYTES, bool AGAIN> __device__ inline void copy_async(void* to, const void* from) {
#ifdef EMULATED
    memcpy(to, from, BYTES);
#else
    if constexpr (AGAIN || BYTES < 16) {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_address(to)), "l"(from), "n"(BYTES));
    } else {
        asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from));
    }
#endif
}

// Ends a group of copies.
__device__ inline void close_copies() {
#ifndef EMULATED
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits for this thread's groups of copies but for the last N.
template <unsigned N> __device__ inline void await_copies() {
#ifndef EMULATED
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}
