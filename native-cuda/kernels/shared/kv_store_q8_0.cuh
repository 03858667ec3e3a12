// How `rope_append` stores a key or a value, which is in `head`, as q8_0. `region` is page n_kv_heads + head.
#pragma once

#include "shared/exact.cuh"
#include "shared/kv_q8_0.cuh"
#include "shared/quantise.cuh"

// [pages, n_kv_heads]: int8 [head_dim / 8, PAGE, 8], scales
using KeyWord = unsigned;
// [pages, n_kv_heads]: int8 [PAGE, head_dim], scales
using ValueWord = unsigned;

constexpr float LARGEST = 65504.0f;

// amax / 127 as f16 bits, ties to even, magnitudes below 2^-14 kept.
__device__ inline unsigned scale_bits(float amax) {
    if (__float_as_uint(amax) < SMALLEST_BITS) {
        return 0;
    }
    const float d = amax * ONE_127TH;
    const unsigned b = __float_as_uint(d);
    if (b < 0x38800000u) {
        // Units of 2^-24.
        return __float2uint_rn(d * 16777216.0f);
    }
    return (b + 0xfffu + ((b >> 13) & 1u) - 0x38000000u) >> 13;
}

__device__ inline float clamped(float x) {
    return max(-LARGEST, min(LARGEST, x));
}

// Four int8 and the bits of their block's scale.
struct Four {
    unsigned bytes, scale;
};

// The values from `i` on, a multiple of 4.
__device__ inline Four quantise(const float* head, unsigned i) {
    unsigned amax = 0;
    for (unsigned j = 0; j < 32; j++) {
        amax = max(amax, magnitude(head[i / 32 * 32 + j]));
    }
    if (amax > INFINITY_BITS) {
        return {0, NAN_SCALE};
    }
    const unsigned scale = scale_bits(__uint_as_float(min(amax, __float_as_uint(LARGEST))));
    if (scale == 0) {
        return {0, 0};
    }
    const float4 x = make_float4(clamped(head[i]), clamped(head[i + 1]), clamped(head[i + 2]), clamped(head[i + 3]));
    return {packed(quantised(x, exact_recip(scale_of(scale)))), scale};
}

// Stores the scale of the block of values `i`.
__device__ inline void store_scale(const Params& params, unsigned* words, unsigned first, unsigned position, unsigned i, unsigned scale) {
    unsigned short* scales = reinterpret_cast<unsigned short*>(&words[first + 16 * params.head_dim]);
    scales[i / 32 * PAGE + position % PAGE] = (unsigned short)scale;
}

__device__ inline void store_key(
    const Params& params, const float* head, unsigned* keys, unsigned region, unsigned position, unsigned lane) {
    if (lane < params.head_dim / 4) {
        const Four four = quantise(head, 4 * lane);
        const unsigned first = region * 17 * params.head_dim;
        keys[first + (lane / 2 * PAGE + position % PAGE) * 2 + lane % 2] = four.bytes;
        if (lane % 8 == 0) {
            store_scale(params, keys, first, position, 4 * lane, four.scale);
        }
    }
}

__device__ inline void store_value(
    const Params& params, const float* head, unsigned* values, unsigned region, unsigned position, unsigned lane) {
    if (lane < params.head_dim / 4) {
        const Four four = quantise(head, 4 * lane);
        const unsigned first = region * 17 * params.head_dim;
        values[first + position % PAGE * (params.head_dim / 4) + lane] = four.bytes;
        if (lane % 8 == 0) {
            store_scale(params, values, first, position, 4 * lane, four.scale);
        }
    }
}
