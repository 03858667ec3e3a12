// How `attention` reads keys and values that are q8_0. `region` is page n_kv_heads + head.
#pragma once

#include "shared/exact.cuh"
#include "shared/kv_q8_0.cuh"

// Eight values of a key as they are stored: [pages, n_kv_heads]: int8 [head_dim / 8, PAGE, 8], scales
using Eight = uint2;
// Four values: [pages, n_kv_heads]: int8 [PAGE, head_dim], scales
using ValueWord = unsigned;

// Scales of the page's values, [head_dim / 32, PAGE].
__shared__ float value_scales[MAX_HEAD_DIM / 32 * PAGE];

// An integer times its scale, rounded to 11 bits; a NaN where the block holds one.
__device__ inline float scaled(int q, float scale) {
    // exact: 7 + 11 significant bits
    const float rounded = round_sig((float)q * scale, 11);
    return __uint_as_float(__float_as_uint(rounded) | (scale < 0.0f ? NAN_BITS : 0));
}

// Byte `i` of a word, as int8.
__device__ inline int byte_of(unsigned word, unsigned i) {
    return (int)(word << (24 - 8 * i)) >> 24;
}

__device__ inline float4 scaled4(unsigned word, float scale) {
    return make_float4(
        scaled(byte_of(word, 0), scale), scaled(byte_of(word, 1), scale), scaled(byte_of(word, 2), scale), scaled(byte_of(word, 3), scale));
}

// Where a key's first eight values are; the next eight are PAGE entries on.
__device__ inline unsigned key_at(const Params& params, unsigned region, unsigned slot) {
    return region * 17 * (params.head_dim / 2) + slot;
}

// The scale of the block that holds the `g`th eight values.
__device__ inline float key_scale(const Params& params, const Eight* keys, unsigned region, unsigned slot, unsigned g) {
    const Eight* scales = &keys[region * 17 * (params.head_dim / 2) + 8 * params.head_dim];
    return scale_of(__ldg(&reinterpret_cast<const unsigned short*>(scales)[g / 4 * PAGE + slot]));
}

__device__ inline float4 low_half(Eight eight, float scale) {
    return scaled4(eight.x, scale);
}

__device__ inline float4 high_half(Eight eight, float scale) {
    return scaled4(eight.y, scale);
}

// Reads the scales of a page's values; a barrier follows before they are used.
__device__ inline void prepare_values(const Params& params, const ValueWord* values, unsigned region, unsigned lane) {
    // A word is two scales.
    if (lane < params.head_dim) {
        const unsigned word = __ldg(&values[region * 17 * params.head_dim + 16 * params.head_dim + lane]);
        value_scales[2 * lane] = scale_of(word & 0xffffu);
        value_scales[2 * lane + 1] = scale_of(word >> 16);
    }
}

// The word that holds a dimension pair in a slot, and the pair beside it.
__device__ inline unsigned load_pair(const Params& params, const ValueWord* values, unsigned region, unsigned slot, unsigned pair) {
    return __ldg(&values[region * 17 * params.head_dim + slot * (params.head_dim / 4) + pair / 2]);
}

// The pair; zeros where it is not used, whatever the slot holds.
__device__ inline float2 pair_of(unsigned word, unsigned slot, unsigned pair, bool used) {
    const unsigned two = used ? word >> (16 * (pair % 2)) : 0;
    const float scale = used ? value_scales[pair / 16 * PAGE + slot] : 0.0f;
    return make_float2(scaled(byte_of(two, 0), scale), scaled(byte_of(two, 1), scale));
}
