// out = (x * rsqrt(mean(x^2) + eps)) * weight, a row a block. Grid: [1, rows, 1].
// Macros: OUTPUT_F32, OUTPUT_ADD or OUTPUT_Q8.
#include "shared/exact.cuh"
#include "shared/position.cuh"
#include "shared/tree256.cuh"

constexpr unsigned LANES = 256;

struct Params {
    unsigned zero;
    // Values a row, segments of a row's blocks and blocks a segment.
    unsigned width;
    unsigned segments;
    unsigned segment_len;
    float eps;
    // 1 / width, rounded.
    float inverse_width;
    // What wrote x last: 0 the embedding, layer + 1 else.
    unsigned source;
};

#include "shared/fours.cuh"
#include "shared/output.cuh"

constexpr unsigned INFINITE = 0x7f800000u;
constexpr unsigned NOT_FINITE = 1;
constexpr unsigned OVER_LIMIT = 2;
constexpr unsigned LAST_POSITION = 0xfffffu;

// Notes the position, the source and the kind where a magnitude reaches the limit. The least word is the earliest.
__device__ inline void check(const Params& params, const Batch* batch, unsigned* tripped, unsigned row, unsigned largest) {
    const unsigned slot = row_slot(batch, row);
    if (largest >= batch->states[slot].limit) {
        const unsigned position = min(row_position(batch, row), LAST_POSITION);
        const unsigned kind = largest >= INFINITE ? NOT_FINITE : OVER_LIMIT;
        atomicMin(&tripped[slot], position << 12 | params.source << 2 | kind);
    }
}

// x: [rows, width]. weight: [width]. tripped, by slot: where and what the guard found first, all ones before.
extern "C" __global__ __launch_bounds__(LANES) void kernel_main(
    const Params params, const Batch* __restrict__ batch, const float* __restrict__ x, const float* __restrict__ weight, unsigned* tripped,
    OUT_POINTERS) {
    const unsigned row = blockIdx.y, lane = threadIdx.x;
    if (row_done(batch, row)) {
        return;
    }
    const float* values = &x[row * params.width];
    float sum = 0.0f;
    unsigned largest = 0;
    // Four loads are on their way at once; what is past the end adds 0.
    for (unsigned first = lane; first < params.width; first += 4 * LANES) {
        float four[4];
#pragma unroll
        for (unsigned j = 0; j < 4; j++) {
            const unsigned i = first + j * LANES;
            four[j] = i < params.width ? values[i] : 0.0f;
        }
#pragma unroll
        for (unsigned j = 0; j < 4; j++) {
            largest = max(largest, __float_as_uint(four[j]) & 0x7fffffffu);
            sum = sum + product(four[j], four[j]);
        }
    }
    // Loaded while the sum is made.
    float4 next = load4(values, 4 * lane, params.width);
    float4 next_weight = load4(weight, 4 * lane, params.width);
    check(params, batch, tripped, row, largest);
    const float total = tree256(lane, sum);
    const float r = exact_rsqrt(product(total, params.inverse_width) + params.eps);

    for (unsigned first = 0; first < params.width; first += 4 * LANES) {
        const unsigned column = first + 4 * lane;
        const float4 v = next, w = next_weight;
        if (first + 4 * LANES < params.width) {
            next = load4(values, column + 4 * LANES, params.width);
            next_weight = load4(weight, column + 4 * LANES, params.width);
        }
        const float4 normed = make_float4(product(v.x * r, w.x), product(v.y * r, w.y), product(v.z * r, w.z), product(v.w * r, w.w));
        emit(params, OUT, row, lane, column, normed);
    }
}
