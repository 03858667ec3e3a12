// Q5_0: nibbles, fifth bits, f16 d.
#pragma once

constexpr unsigned BITS = 5;
constexpr int OFFSET = 16;
constexpr bool HAS_MIN = false;
constexpr bool HAS_SUBS = false;
constexpr bool HAS_SUPERS = false;

#include "shared/blocks.cuh"

__device__ inline Block load_block(const Matrix& m, unsigned row, unsigned place, unsigned) {
    const uint4 q = quants_of(m, row, place);
    const unsigned bits = high_of(m, row, place);
    const float d = half_to_float(load16(scales_of(m, row), place));
    return {with_high(nibbles(q, 0), bits, 0, 1, ONES), with_high(nibbles(q, 4), bits, 4, 1, ONES), d, 0.0f, 1, 1};
}
