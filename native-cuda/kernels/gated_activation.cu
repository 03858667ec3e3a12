// out = activation(gate) * up, zero below 2^-100, a vector a block of y. Grid: [ceil(width / 256), rows * vectors, 1].
// Macros: OUTPUT_F32 or OUTPUT_Q8.
#include "shared/exact.cuh"
#include "shared/running.cuh"

constexpr unsigned LANES = 64;

struct Params {
    unsigned zero;
    // Vectors a row; values an output vector, segments of its blocks and blocks a segment.
    unsigned vectors;
    unsigned width;
    unsigned segments;
    unsigned segment_len;
    // 0: silu, 1: gelu (tanh form).
    unsigned activation;
};

#include "shared/fours.cuh"
#include "shared/output.cuh"

__device__ inline float gated(const Params& params, float gate, float up) {
    const float activated = params.activation == 0 ? exact_silu(gate) : exact_gelu_tanh(gate);
    return flush_small(activated * up);
}

// gate_up: [rows, vectors, 2 width]: gate, up
extern "C" __global__ __launch_bounds__(LANES) void kernel_main(
    const Params params, const Batch* __restrict__ batch, const float* __restrict__ gate_up, OUT_POINTERS) {
    const unsigned vector = blockIdx.y, lane = threadIdx.x;
    if (row_done(batch, vector / params.vectors)) {
        return;
    }
    const float* gates = &gate_up[vector * 2 * params.width];
    const unsigned column = blockIdx.x * 4 * LANES + 4 * lane;
    // Past the width both are 0, and so is what they make.
    const float4 gate = load4(gates, column, params.width);
    const float4 up = load4(gates + params.width, column, params.width);
    const float4 values = make_float4(
        gated(params, gate.x, up.x), gated(params, gate.y, up.y), gated(params, gate.z, up.z), gated(params, gate.w, up.w));
    emit(params, OUT, vector, lane, column, values);
}
