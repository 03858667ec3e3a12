// Output of an operation as f32 [rows, width].
#pragma once

#include "shared/fours.cuh"

#define OUT_POINTERS float *__restrict__ out
#define OUT out

__device__ inline void emit(const Params& params, float* out, unsigned row, unsigned, unsigned first, float4 values) {
    store4(&out[row * params.width], first, params.width, values);
}
