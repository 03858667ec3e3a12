// Q8_0: int8, f16 d.
#pragma once

constexpr unsigned BITS = 8;
constexpr int OFFSET = 0;
constexpr bool HAS_MIN = false;
constexpr bool HAS_SUBS = false;
constexpr bool HAS_SUPERS = false;

#include "shared/blocks.cuh"

__device__ inline Block load_block(const Matrix& m, unsigned row, unsigned place, unsigned) {
    const float d = half_to_float(load16(scales_of(m, row), place));
    return {quants_of(m, row, 2 * place), quants_of(m, row, 2 * place + 1), d, 0.0f, 1, 1};
}
