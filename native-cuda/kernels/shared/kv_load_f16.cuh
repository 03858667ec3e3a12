// How `attention` reads keys and values that are f16. `region` is page n_kv_heads + head.
#pragma once

#include "shared/intrinsics.cuh"

// Eight values of a key as they are stored: [pages, n_kv_heads, head_dim / 8, PAGE]
using Eight = uint4;
// Two values: [pages, n_kv_heads, PAGE, head_dim / 2]
using ValueWord = unsigned;

// Where a key's first eight values are; the next eight are PAGE entries on.
__device__ inline unsigned key_at(const Params& params, unsigned region, unsigned slot) {
    return region * (params.head_dim / 8) * PAGE + slot;
}

// f16 has no scales.
__device__ inline float key_scale(const Params&, const Eight*, unsigned, unsigned, unsigned) {
    return 1.0f;
}

__device__ inline float4 low_half(Eight eight, float) {
    const float2 a = halves_to_floats(eight.x), b = halves_to_floats(eight.y);
    return make_float4(a.x, a.y, b.x, b.y);
}

__device__ inline float4 high_half(Eight eight, float) {
    const float2 a = halves_to_floats(eight.z), b = halves_to_floats(eight.w);
    return make_float4(a.x, a.y, b.x, b.y);
}

__device__ inline void prepare_values(const Params&, const ValueWord*, unsigned, unsigned) {}

// The word that holds a dimension pair in a slot.
__device__ inline unsigned load_pair(const Params& params, const ValueWord* values, unsigned region, unsigned slot, unsigned pair) {
    return __ldg(&values[(region * PAGE + slot) * (params.head_dim / 2) + pair]);
}

// The pair; zeros where it is not used, whatever the slot holds.
__device__ inline float2 pair_of(unsigned word, unsigned, unsigned, bool used) {
    return halves_to_floats(used ? word : 0);
}
