// out[r] = dequantise(weight[token[r]]) * scale, four values a lane. Grid: [ceil(width / 256), rows, 1].
// Macros: QUANT_<format>.
#include "shared/plane_params.cuh"
#include "shared/running.cuh"

constexpr unsigned LANES = 64;

struct Params {
    unsigned zero;
    unsigned width;
    // Segments of a row's blocks and blocks a segment.
    unsigned segments;
    unsigned segment_len;
    // The rows this part of the matrix holds; other tokens are another launch's.
    unsigned first_row;
    unsigned rows;
    float scale;
    Planes planes;
};

#include "quant/format.cuh"

// tokens: by row of a chunk, else by slot. out: [rows, width / 4]
extern "C" __global__ __launch_bounds__(LANES) void kernel_main(
    const Params params, const Batch* __restrict__ batch, const uint4* __restrict__ quants, const unsigned* __restrict__ planes,
    const unsigned* __restrict__ tokens, float4* __restrict__ out) {
    const unsigned r = blockIdx.y;
    if (row_done(batch, r)) {
        return;
    }
    const unsigned row = tokens[batch->chunk == 1 ? r : row_slot(batch, r)] - params.first_row;
    const unsigned i = blockIdx.x * LANES + threadIdx.x;
    if (row >= params.rows || 4 * i >= params.width) {
        return;
    }
    const unsigned block = i / 8;
    const unsigned place = block % params.segment_len * params.segments + block / params.segment_len;
    const float4 w = weights4({params, quants, planes}, row, place, block, i % 8);
    out[r * (params.width / 4) + i] = make_float4(w.x * params.scale, w.y * params.scale, w.z * params.scale, w.w * params.scale);
}
