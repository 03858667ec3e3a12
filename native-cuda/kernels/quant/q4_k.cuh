// Q4_K: nibbles, u8 scale and minimum a block, f16 d and dmin a superblock.
#pragma once

constexpr unsigned BITS = 4;
constexpr int OFFSET = 0;
constexpr bool HAS_MIN = true;
constexpr bool HAS_SUBS = false;
constexpr bool HAS_SUPERS = true;

#include "shared/blocks.cuh"

__device__ inline Block load_block(const Matrix& m, unsigned row, unsigned place, unsigned block) {
    const uint4 q = quants_of(m, row, place);
    const float2 scales = k_scales(m, row, place, block);
    return {nibbles(q, 0), nibbles(q, 4), scales.x, scales.y, 1, 1};
}
