// out = (x * rsqrt(mean(x^2) + eps)) * weight * silu(gate), zero below 2^-100, a head a block. Grid: [n_heads, rows, 1].
// Macros: OUTPUT_F32 or OUTPUT_Q8.
#include "shared/exact.cuh"
#include "shared/running.cuh"
#include "shared/tree256.cuh"

constexpr unsigned LANES = 256;

struct Params {
    unsigned zero;
    // Values an output row (n_heads size), segments of its blocks and blocks a segment.
    unsigned width;
    unsigned segments;
    unsigned segment_len;
    unsigned size;
    // Values a row of the projections, and where the gates begin in it.
    unsigned mixed_width;
    unsigned gates_at;
    float eps;
    // 1 / size, rounded.
    float inverse_size;
};

#include "shared/output.cuh"

// x: [rows, width]. mixed: [rows, mixed_width]. weight: [size].
extern "C" __global__ __launch_bounds__(LANES) void kernel_main(
    const Params params, const Batch* __restrict__ batch, const float* __restrict__ x, const float* __restrict__ mixed,
    const float* __restrict__ weight, OUT_POINTERS) {
    const unsigned lane = threadIdx.x, row = blockIdx.y;
    if (row_done(batch, row)) {
        return;
    }
    const unsigned head_at = blockIdx.x * params.size;
    const float* head = &x[row * params.width + head_at];
    const float* gates = &mixed[row * params.mixed_width + params.gates_at + head_at];
    const float total = tree256(lane, lane < params.size ? product(head[lane], head[lane]) : 0.0f);
    const float r = exact_rsqrt(product(total, params.inverse_size) + params.eps);

    // Lanes past the head's end write nothing.
    unsigned first = params.width;
    float values[4] = {};
    if (4 * lane < params.size) {
        first = head_at + 4 * lane;
        for (unsigned j = 0; j < 4; j++) {
            const unsigned i = 4 * lane + j;
            values[j] = flush_small(exact_silu(gates[i]) * ((head[i] * r) * weight[i]));
        }
    }
    emit(params, OUT, row, lane, first, make_float4(values[0], values[1], values[2], values[3]));
}
