// F32: values in order.
#pragma once

#include "shared/exact.cuh"
#include "shared/planes.cuh"

#define FLOAT_WEIGHTS

__device__ inline float4 weights4(const Matrix& m, unsigned row, unsigned place, unsigned, unsigned group) {
    const uint4 four = quants_of(m, row, 8 * place + group);
    return make_float4(__uint_as_float(four.x), __uint_as_float(four.y), __uint_as_float(four.z), __uint_as_float(four.w));
}

__device__ inline float rounded(float x) {
    return x;
}
