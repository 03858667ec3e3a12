// A kernel as a shared library:
//   g++ -std=c++17 -O2 -ffp-contract=off -shared -fPIC -DEMULATED -DKERNEL='"matmul.cu"' <variant's macros> -I kernels
//       emulator/module.cpp -o matmul.so
// A kernel defines LANES, the threads of a block, and kernel_main(params, pointers...).
#include <mutex>
#include <utility>

#include "fibers.hpp"

// What a kernel keeps in static memory is its module's alone, also inside inline functions.
#pragma GCC visibility push(hidden)
#include "cuda.hpp"

#include KERNEL
#pragma GCC visibility pop

namespace launch {

// What the threads of the running launch call the kernel with.
static const void* params;
static void* const* pointers;

template <class P, class... A, size_t... I>
static void call(void (*kernel)(P, A...), std::index_sequence<I...>) {
    P copy;
    memcpy(static_cast<void*>(&copy), params, sizeof(copy));
    kernel(copy, static_cast<A>(pointers[I])...);
}

template <class P, class... A> static void call(void (*kernel)(P, A...)) {
    call(kernel, std::index_sequence_for<A...>());
}

static void thread() { call(kernel_main); }

// Shared memory and fibers are the module's: one launch at a time.
static std::mutex one;

} // namespace launch

// Runs the kernel's blocks one after another. `params` points to the bytes of its Params; `pointers` are its other arguments, at
// multiples of 16 bytes.
extern "C" __attribute__((visibility("default"))) void emulated_launch(
    unsigned x, unsigned y, unsigned z, const void* params, void* const* pointers) {
    std::lock_guard<std::mutex> lock(launch::one);
    launch::params = params;
    launch::pointers = pointers;
    gridDim = dim3{x, y, z};
    blockDim = dim3{LANES, 1, 1};
    for (blockIdx.z = 0; blockIdx.z < z; blockIdx.z++) {
        for (blockIdx.y = 0; blockIdx.y < y; blockIdx.y++) {
            for (blockIdx.x = 0; blockIdx.x < x; blockIdx.x++) {
                fibers::run_block(LANES, launch::thread);
            }
        }
    }
}
