// BF16: values in order.
#pragma once

#include "shared/exact.cuh"
#include "shared/planes.cuh"

#define FLOAT_WEIGHTS

__device__ inline float4 weights4(const Matrix& m, unsigned row, unsigned place, unsigned, unsigned group) {
    const uint4 four = quants_of(m, row, 4 * place + group / 2);
    const unsigned a = group % 2 == 1 ? four.z : four.x;
    const unsigned b = group % 2 == 1 ? four.w : four.y;
    return make_float4(
        __uint_as_float(a << 16), __uint_as_float(a & 0xffff0000u), __uint_as_float(b << 16), __uint_as_float(b & 0xffff0000u));
}

// Products with it are exact: 8 + 16 significant bits.
__device__ inline float rounded(float x) {
    return round_sig(x, 16);
}
