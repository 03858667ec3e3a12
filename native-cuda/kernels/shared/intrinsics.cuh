// What has no name of its own in CUDA without its headers: conversions of halves. The emulator has them as integer operations.
#pragma once

// The value of the half whose bits are the low 16 of `bits`, denormal halves included.
__device__ inline float half_to_float(unsigned bits) {
#ifdef EMULATED
    const unsigned sign = (bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
    if (magnitude < 0x400u) {
        return __uint_as_float(sign | __float_as_uint((float)magnitude * 5.9604644775390625e-8f));
    }
    const unsigned exponent = magnitude >= 0x7c00u ? 0x70000000u : 0x38000000u;
    return __uint_as_float(sign | ((magnitude << 13) + exponent));
#else
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((unsigned short)bits));
    return value;
#endif
}

// The two halves of a word, the low one first.
__device__ inline float2 halves_to_floats(unsigned word) {
    return make_float2(half_to_float(word), half_to_float(word >> 16));
}

// Keeps a value in a register that could be computed again where it is needed.
__device__ inline void keep(unsigned& value) {
#ifdef EMULATED
    (void)value;
#else
    asm volatile("" : "+r"(value));
#endif
}
