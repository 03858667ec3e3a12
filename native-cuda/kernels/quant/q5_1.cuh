// Q5_1: nibbles, fifth bits, f16 d and m.
#pragma once

constexpr unsigned BITS = 5;
constexpr int OFFSET = 0;
constexpr bool HAS_MIN = true;
constexpr bool HAS_SUBS = false;
constexpr bool HAS_SUPERS = false;

#include "shared/blocks.cuh"

__device__ inline Block load_block(const Matrix& m, unsigned row, unsigned place, unsigned) {
    const uint4 q = quants_of(m, row, place);
    const unsigned bits = high_of(m, row, place);
    const float2 dm = halves_to_floats(__ldg(&scales_of(m, row)[place]));
    return {with_high(nibbles(q, 0), bits, 0, 1, ONES), with_high(nibbles(q, 4), bits, 4, 1, ONES), dm.x, dm.y, 1, 1};
}
