// F16: values in order.
#pragma once

#include "shared/exact.cuh"
#include "shared/planes.cuh"

#define FLOAT_WEIGHTS

__device__ inline float4 weights4(const Matrix& m, unsigned row, unsigned place, unsigned, unsigned group) {
    const uint4 four = quants_of(m, row, 4 * place + group / 2);
    const float2 a = halves_to_floats(group % 2 == 1 ? four.z : four.x);
    const float2 b = halves_to_floats(group % 2 == 1 ? four.w : four.y);
    return make_float4(a.x, a.y, b.x, b.y);
}

// Products with it are exact: 11 + 12 significant bits.
__device__ inline float rounded(float x) {
    return round_sig(x, 12);
}
