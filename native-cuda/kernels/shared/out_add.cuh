// Output of an operation added to f32 [rows, width].
#pragma once

#include "shared/fours.cuh"

#define OUT_POINTERS float *__restrict__ out
#define OUT out

__device__ inline void emit(const Params& params, float* out, unsigned row, unsigned, unsigned first, float4 values) {
    float* to = &out[row * params.width];
    const float4 old = load4(to, first, params.width);
    const float4 sum = make_float4(old.x + values.x, old.y + values.y, old.z + values.z, old.w + values.w);
    store4(to, first, params.width, sum);
}
