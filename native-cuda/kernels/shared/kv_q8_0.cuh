// Scales of a cache of type q8_0. A head's region of a page has 17 head_dim words: int8 values, then an f16 scale for each 32 of them,
// [head_dim / 32, PAGE].
#pragma once

#include "shared/intrinsics.cuh"

constexpr unsigned NAN_SCALE = 0x7e00u;

// The value of a scale's f16 bits; -1 for a block that holds a NaN.
__device__ inline float scale_of(unsigned bits) {
    return bits == NAN_SCALE ? -1.0f : half_to_float(bits);
}
