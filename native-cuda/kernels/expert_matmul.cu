// out[r, p, out_offset + j] = weight[expert[r, p] * n_rows + j] . x, a pick and `rows_a_group` rows of its expert a block. A lane folds one
// segment of one row; then a warp combines the segments of a row by the tree of adjacent pairs.
// Grid: [x, y, rows * n_used], x * y blocks cover the rows of an expert.
// Macros: QUANT_<format>.
#define TILE 1
#include "shared/running.cuh"
#include "shared/expert_matmul_params.cuh"
#include "shared/fold.cuh"
#include "shared/tree32.cuh"

constexpr unsigned LANES = 256;
constexpr unsigned MAX_ROWS = 16;

// route: [rows, n_used]: id, bits of the weight. out: [rows, n_used, out_width]. Launch bounds as in matmul.cu.
extern "C" __global__ __launch_bounds__(LANES, 3) void kernel_main(
    const Params params, const Batch* __restrict__ batch, const uint4* __restrict__ quants, const unsigned* __restrict__ planes, X_POINTERS,
    const uint2* __restrict__ route, float* __restrict__ out) {
    // [rows_a_group, segments]
    __shared__ float sums[MAX_ROWS * 32];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const unsigned pick = blockIdx.z;
    if (row_done(batch, pick / params.n_used)) {
        return;
    }
    const unsigned expert = route[pick].x;
    const unsigned first = (blockIdx.y * gridDim.x + blockIdx.x) * params.rows_a_group;
    const unsigned local_row = threadIdx.x / params.segments;
    const unsigned segment = threadIdx.x % params.segments;
    const unsigned row = part_row(params, expert, first + local_row);
    float part[1] = {};
    if (local_row < params.rows_a_group && row < params.rows) {
        fold({params, quants, planes}, X_VALUES, row, segment, {x_of(params, pick)}, part);
        sums[threadIdx.x] = part[0];
    }
    __syncthreads();
    for (unsigned j = warp; j < params.rows_a_group; j += LANES / 32) {
        if (part_row(params, expert, first + j) < params.rows) {
            part[0] = lane < params.segments ? sums[j * params.segments + lane] : 0.0f;
            const float sum = tree32(part, lane);
            if (lane == 0) {
                out[pick * params.out_width + params.out_offset + first + j] = sum;
            }
        }
    }
}
