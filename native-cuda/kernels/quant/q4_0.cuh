// Q4_0: nibbles, f16 d.
#pragma once

constexpr unsigned BITS = 4;
constexpr int OFFSET = 8;
constexpr bool HAS_MIN = false;
constexpr bool HAS_SUBS = false;
constexpr bool HAS_SUPERS = false;

#include "shared/blocks.cuh"

__device__ inline Block load_block(const Matrix& m, unsigned row, unsigned place, unsigned) {
    const uint4 q = quants_of(m, row, place);
    const float d = half_to_float(load16(scales_of(m, row), place));
    return {nibbles(q, 0), nibbles(q, 4), d, 0.0f, 1, 1};
}
