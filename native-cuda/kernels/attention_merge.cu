// Merges a row's partial results: ascending within groups of 32 chunks, then the groups ascending; out = values / sum, times the sigmoid of
// the gate where there is one. Grid: [ceil(width / 256), rows, 1].
// Macros: OUTPUT_F32 or OUTPUT_Q8.
#include "shared/exact.cuh"
#include "shared/position.cuh"

constexpr unsigned LANES = 64;

struct Params {
    unsigned zero;
    // Values an output row (n_heads head_dim), segments of its blocks and blocks a segment.
    unsigned width;
    unsigned segments;
    unsigned segment_len;
    unsigned n_heads;
    unsigned head_dim;
    unsigned window;
    unsigned chunks_per_unit;
    unsigned max_units;
    // 1 where each query head is followed by its gate.
    unsigned gated;
    // Values a row of qkv.
    unsigned qkv_width;
};

#include "shared/chunks.cuh"
#include "shared/output.cuh"

struct Partial {
    float maximum, sum;
    float4 values;
};

__device__ inline Partial load(const float* partials, unsigned at, unsigned dim) {
    // A partial result begins at an even offset, `dim` is a multiple of 4.
    const float2* from = reinterpret_cast<const float2*>(&partials[at]);
    const float2 head = from[0], a = from[1 + dim / 2], b = from[2 + dim / 2];
    return {head.x, head.y, make_float4(a.x, a.y, b.x, b.y)};
}

__device__ inline float4 blend(float4 a, float fa, float4 b, float fb) {
    return make_float4(
        product(a.x, fa) + product(b.x, fb), product(a.y, fa) + product(b.y, fb), product(a.z, fa) + product(b.z, fb),
        product(a.w, fa) + product(b.w, fb));
}

// `a` is the earlier one.
__device__ inline Partial merge(const Partial& a, const Partial& b) {
    const float maximum = max(a.maximum, b.maximum);
    const float fa = exact_exp2(a.maximum - maximum), fb = exact_exp2(b.maximum - maximum);
    return {maximum, product(a.sum, fa) + product(b.sum, fb), blend(a.values, fa, b.values, fb)};
}

__device__ inline float4 times(float4 v, float factor) {
    return make_float4(v.x * factor, v.y * factor, v.z * factor, v.w * factor);
}

__device__ inline float4 merged(const Params& params, const float* partials, unsigned row, unsigned position, unsigned column) {
    const unsigned head = column / params.head_dim, dim = column % params.head_dim;
    const unsigned first = first_unit(params, position), end = end_unit(params, position);
    const unsigned units_a_group = CHUNKS_PER_GROUP / params.chunks_per_unit;
    // The next unit is on its way while this one is merged.
    Partial next = load(partials, partial_at(params, row, 0, head), dim);
    Partial group = next, total = next;
    bool has_total = false;
    for (unsigned unit = first; unit < end; unit++) {
        const Partial current = next;
        if (unit + 1 < end) {
            next = load(partials, partial_at(params, row, unit + 1 - first, head), dim);
        }
        if (unit == first) {
            group = current;
        } else if (unit % units_a_group != 0) {
            group = merge(group, current);
        } else {
            total = has_total ? merge(total, group) : group;
            has_total = true;
            group = current;
        }
    }
    total = has_total ? merge(total, group) : group;
    return times(total.values, exact_recip(total.sum));
}

// Values from a column on, times the sigmoids of their gates where there are any; zero below 2^-100 then.
__device__ inline float4 gated(const Params& params, const float* qkv, unsigned row, unsigned column, float4 v) {
    if (params.gated == 0) {
        return v;
    }
    const unsigned head = column / params.head_dim;
    const unsigned at = row * params.qkv_width + (2 * head + 1) * params.head_dim + column % params.head_dim;
    const float4 gate = *reinterpret_cast<const float4*>(&qkv[at]);
    return make_float4(
        flush_small(v.x * exact_sigmoid(gate.x)), flush_small(v.y * exact_sigmoid(gate.y)), flush_small(v.z * exact_sigmoid(gate.z)),
        flush_small(v.w * exact_sigmoid(gate.w)));
}

// partials: [rows, max_units, n_heads, 2 + head_dim]. qkv: [rows, qkv_width]: query and gate of each head, then keys and values.
extern "C" __global__ __launch_bounds__(LANES) void kernel_main(
    const Params params, const Batch* __restrict__ batch, const float* __restrict__ partials, const float* __restrict__ qkv, OUT_POINTERS) {
    const unsigned row = blockIdx.y, lane = threadIdx.x;
    if (row_done(batch, row)) {
        return;
    }
    const unsigned column = blockIdx.x * 4 * LANES + 4 * lane;
    float4 values = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (column < params.width) {
        values = gated(params, qkv, row, column, merged(params, partials, row, row_position(batch, row), column));
    }
    emit(params, OUT, row, lane, column, values);
}
