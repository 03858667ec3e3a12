// How `rope_append` stores a key or a value, which is in `head`, as f16. `region` is page n_kv_heads + head.
#pragma once

#include "shared/exact.cuh"

// [pages, n_kv_heads, head_dim / 8, PAGE], eight f16 an entry
using KeyWord = uint4;
// [pages, n_kv_heads, PAGE, head_dim / 2], two f16 an entry
using ValueWord = unsigned;

__device__ inline unsigned pack(const float* pair) {
    return to_f16_bits(pair[0]) | to_f16_bits(pair[1]) << 16;
}

__device__ inline void store_key(const Params& params, const float* head, uint4* keys, unsigned region, unsigned position, unsigned lane) {
    if (lane < params.head_dim / 8) {
        const float* eight = &head[8 * lane];
        keys[(region * (params.head_dim / 8) + lane) * PAGE + position % PAGE] =
            make_uint4(pack(eight), pack(eight + 2), pack(eight + 4), pack(eight + 6));
    }
}

__device__ inline void store_value(
    const Params& params, const float* head, unsigned* values, unsigned region, unsigned position, unsigned lane) {
    if (lane < params.head_dim / 2) {
        values[(region * PAGE + position % PAGE) * (params.head_dim / 2) + lane] = pack(&head[2 * lane]);
    }
}
