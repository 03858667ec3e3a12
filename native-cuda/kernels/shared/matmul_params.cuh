// What matmul is told about a part of a matrix.
#pragma once

#include "shared/plane_params.cuh"
#include "shared/running.cuh"

struct Params {
    unsigned zero;
    // Rows of this part of the matrix.
    unsigned rows;
    // Blocks a row, its segments and blocks a segment.
    unsigned blocks;
    unsigned segments;
    unsigned segment_len;
    // Rows a block of threads computes: in matmul.cu at most MAX_ROWS, and rows_a_group * segments at most LANES; in matmul_mma.cu ROWS.
    unsigned rows_a_group;
    // Column of the first row's result, columns of `out`.
    unsigned out_offset;
    unsigned out_width;
    unsigned accumulate;
    // 1: a row's results go to its slot's row of `out`.
    unsigned by_slot;
    Planes planes;
};

__device__ inline bool row_runs(const Batch* batch, unsigned row) {
    return row < batch->n_rows && !row_done(batch, row);
}

// Whether any of TILE rows has work to do.
__device__ inline bool tile_runs(const Batch* batch, unsigned first_row) {
    for (unsigned r = 0; r < TILE; r++) {
        if (row_runs(batch, first_row + r)) {
            return true;
        }
    }
    return false;
}

__device__ inline unsigned out_row(const Params& params, const Batch* batch, unsigned row) {
    return params.by_slot == 1 ? row_slot(batch, row) : row;
}
