// CUDA as plain C++ for kernels without a GPU: the words, types and functions that `kernels/` uses, with the GPU's results. Dynamic shared
// memory, streams and floats' fast functions are not here.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "fibers.hpp"

#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __constant__ static
#define __grid_constant__
#define __launch_bounds__(...)
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) alignas(n)

struct uint2 { unsigned x, y; };
struct uint3 { unsigned x, y, z; };
struct __align__(16) uint4 { unsigned x, y, z, w; };
struct int2 { int x, y; };
struct __align__(16) int4 { int x, y, z, w; };
struct float2 { float x, y; };
struct __align__(16) float4 { float x, y, z, w; };
using dim3 = uint3;

inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

static dim3 blockIdx, gridDim, blockDim;
// Of the thread that runs; a block is one dimensional.
#define threadIdx (uint3{fibers::current, 0, 0})

// Bits.

template <class To, class From> inline To bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    memcpy(&to, &from, sizeof(to));
    return to;
}
inline unsigned __float_as_uint(float x) { return bits_as<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return bits_as<float>(x); }
inline float __int_as_float(int x) { return bits_as<float>(x); }

// Arithmetic.

inline float __fmul_rn(float a, float b) { return a * b; }
// Conversions to integers saturate; NaN gives 0.
inline int __float2int_rz(float x) {
    return x != x ? 0 : x <= -2147483648.0f ? INT32_MIN : x >= 2147483648.0f ? INT32_MAX : int(x);
}
inline int __float2int_rn(float x) { return __float2int_rz(rintf(x)); }
inline unsigned __float2uint_rz(float x) { return !(x > 0.0f) ? 0 : x >= 4294967296.0f ? UINT32_MAX : unsigned(x); }
inline unsigned __float2uint_rn(float x) { return __float2uint_rz(rintf(x)); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned(uint64_t(a) * b >> 32); }
inline int __dp4a(int a, int b, int sum) {
    for (int i = 0; i < 4; i++) {
        sum = int(unsigned(sum) + unsigned(int8_t(a >> (8 * i)) * int8_t(b >> (8 * i))));
    }
    return sum;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned sum) {
    for (int i = 0; i < 4; i++) {
        sum += (a >> (8 * i) & 0xff) * (b >> (8 * i) & 0xff);
    }
    return sum;
}
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
inline unsigned long long min(unsigned long long a, unsigned long long b) { return a < b ? a : b; }
inline unsigned long long max(unsigned long long a, unsigned long long b) { return a > b ? a : b; }
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }

// Memory. One thread runs at a time, so plain operations are atomic.

template <class T> inline T __ldg(const T* at) { return *at; }
template <class T, class F> inline T exchange(T* at, F next) {
    T old = *at;
    *at = next(old);
    return old;
}
#define ATOMIC(NAME, NEXT) \
    inline unsigned NAME(unsigned* at, unsigned value) { return exchange(at, [=](unsigned old) { return NEXT; }); } \
    inline int NAME(int* at, int value) { return exchange(at, [=](int old) { return NEXT; }); } \
    inline unsigned long long NAME(unsigned long long* at, unsigned long long value) { \
        return exchange(at, [=](unsigned long long old) { return NEXT; }); \
    }
ATOMIC(atomicAdd, old + value)
ATOMIC(atomicMin, min(old, value))
#undef ATOMIC

// Barriers and collectives of a warp.

inline void __syncthreads() { fibers::to_scheduler(fibers::At::BLOCK); }

// Shows a value to the lanes of a mask; what the lanes of the warp show is then at the address returned.
inline const unsigned* show(unsigned mask, unsigned value) {
    fibers::Fiber& fiber = fibers::all[fibers::current];
    if ((mask >> (fibers::current % fibers::WARP) & 1) == 0) {
        fibers::fail("is not in the mask of its collective");
    }
    fiber.mask = mask;
    fiber.shown = value;
    fibers::to_scheduler(fibers::At::WARP);
    return &fibers::seen[fibers::current / fibers::WARP * fibers::WARP];
}
inline void __syncwarp(unsigned mask = 0xffffffffu) { show(mask, 0); }

// The value of the lane `from` of this lane's `width` lanes, its own where that is none of them.
template <class T> inline T shuffled(unsigned mask, T value, int from, int width) {
    if constexpr (sizeof(T) == 8) {
        uint2 halves = bits_as<uint2>(value);
        return bits_as<T>(uint2{shuffled(mask, halves.x, from, width), shuffled(mask, halves.y, from, width)});
    } else {
        int lane = int(fibers::current % fibers::WARP);
        const unsigned* values = show(mask, bits_as<unsigned>(value));
        int source = from < 0 || from >= width ? lane : lane / width * width + from;
        if ((mask >> source & 1) == 0) {
            fibers::fail("reads a lane that is not in the mask of its collective");
        }
        return bits_as<T>(values[source]);
    }
}
inline int lane_in(int width) { return int(fibers::current) % width; }
template <class T> inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
    return shuffled(mask, value, lane_in(width) - int(delta), width);
}
template <class T> inline T __shfl_xor_sync(unsigned mask, T value, int other, int width = 32) {
    return shuffled(mask, value, lane_in(width) ^ other, width);
}

// Folds what the lanes of the mask show, in ascending order.
