// Floats to int8, four at a time.
#pragma once

constexpr unsigned INFINITY_BITS = 0x7f800000u;
// 2^-100, below which a block counts as zero.
constexpr unsigned SMALLEST_BITS = 0x0d800000u;
// 1/127 rounded.
constexpr float ONE_127TH = 0.007874016f;

__device__ inline unsigned magnitude(float x) {
    return __float_as_uint(x) & 0x7fffffffu;
}

__device__ inline int quantised(float x, float r) {
    return max(-127, min(127, __float2int_rn(x * r)));
}

// clamp(round(x * r), -127, 127) of each.
__device__ inline int4 quantised(float4 x, float r) {
    return make_int4(quantised(x.x, r), quantised(x.y, r), quantised(x.z, r), quantised(x.w, r));
}

// Four int8 as a word, the first one lowest.
__device__ inline unsigned packed(int4 q) {
    return (q.x & 0xffu) | (q.y & 0xffu) << 8 | (q.z & 0xffu) << 16 | (unsigned)q.w << 24;
}
