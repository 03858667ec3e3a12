// out[r, out_offset + j] = weight[j] . x[r] (+ the old value), TILE rows of x a block, `rows_a_group` rows of the weight. A lane folds one segment
// of one row; then a warp combines the segments of a row by the tree of adjacent pairs.
// Grid: [x, y, ceil(x rows / TILE)], x * y blocks cover the rows.
// Macros: TILE (a power of two, at most 32), QUANT_<format>.
#include "shared/matmul_params.cuh"
#include "shared/fold.cuh"
#include "shared/tree32.cuh"

constexpr unsigned LANES = 256;
// The largest `rows_a_group`: `WARPS_MAX_ROWS` of src/gpu/tiles.rs.
constexpr unsigned MAX_ROWS = 16;

// Sums up a row of the weight for TILE rows of x: all lanes of a warp call it, each with its segment's part or +0.
__device__ inline void finish(
    const Params& params, const Batch* batch, float* out, unsigned row, unsigned first_x, const float (&parts)[TILE], unsigned lane) {
    const float sum = tree32(parts, lane);
    if (lane < TILE && row_runs(batch, first_x + lane)) {
        float* to = &out[out_row(params, batch, first_x + lane) * params.out_width + params.out_offset + row];
        *to = params.accumulate == 1 ? *to + sum : sum;
    }
}

// out: [x rows, out_width]. The second launch bound, on blocks a multiprocessor, is there for the registers it allows: with none
// the compiler saves them by waiting for one load after another.
extern "C" __global__ __launch_bounds__(LANES, TILE == 1 ? 3 : 2) void kernel_main(
    const Params params, const Batch* __restrict__ batch, const uint4* __restrict__ quants, const unsigned* __restrict__ planes, X_POINTERS,
    float* __restrict__ out) {
    // [rows_a_group, TILE, segments]
    __shared__ float sums[MAX_ROWS * TILE * 32];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const unsigned first_row = (blockIdx.y * gridDim.x + blockIdx.x) * params.rows_a_group;
    const unsigned first_x = blockIdx.z * TILE;
    if (first_row >= params.rows || !tile_runs(batch, first_x)) {
        return;
    }
    // Rows of x past the last are computed as the last one again.
    unsigned x_rows[TILE];
    for (unsigned r = 0; r < TILE; r++) {
        x_rows[r] = min(first_x + r, batch->n_rows - 1);
    }
    const unsigned n_rows = min(params.rows_a_group, params.rows - first_row);
    const unsigned segment = threadIdx.x % params.segments;
    if (params.segments == 32) {
        // A warp's lanes are the segments of a row.
        if (warp < n_rows) {
            float parts[TILE] = {};
            fold({params, quants, planes}, X_VALUES, first_row + warp, segment, x_rows, parts);
            finish(params, batch, out, first_row + warp, first_x, parts, lane);
        }
        return;
    }
    const unsigned j = threadIdx.x / params.segments;
    if (j < n_rows) {
        float parts[TILE] = {};
        fold({params, quants, planes}, X_VALUES, first_row + j, segment, x_rows, parts);
        for (unsigned r = 0; r < TILE; r++) {
            sums[(j * TILE + r) * params.segments + segment] = parts[r];
        }
    }
    __syncthreads();
    for (unsigned j = warp; j < n_rows; j += LANES / 32) {
        float parts[TILE];
        for (unsigned r = 0; r < TILE; r++) {
            parts[r] = lane < params.segments ? sums[(j * TILE + r) * params.segments + lane] : 0.0f;
        }
        finish(params, batch, out, first_row + j, first_x, parts, lane);
    }
}
