// What expert_matmul is told about a part of the experts' matrices.
#pragma once

#include "shared/plane_params.cuh"

struct Params {
    unsigned zero;
    // First row of this part of the matrices, and its rows.
    unsigned first_row;
    unsigned rows;
    // Rows of one expert; other parts may hold some of them.
    unsigned n_rows;
    // Blocks a row, its segments and blocks a segment.
    unsigned blocks;
    unsigned segments;
    unsigned segment_len;
    // Rows a block of threads computes, as in matmul_params.cuh.
    unsigned rows_a_group;
    // Experts picked a row; vectors of x a row, either 1 or as many.
    unsigned n_used;
    unsigned x_vectors;
    // Column of an expert's first row's result, columns of `out`.
    unsigned out_offset;
    unsigned out_width;
    Planes planes;
};

// Where row `j` of an expert lies in this part; at least `rows` where it lies in another, or is none of the expert's.
__device__ inline unsigned part_row(const Params& params, unsigned expert, unsigned j) {
    return j < params.n_rows ? expert * params.n_rows + j - params.first_row : params.rows;
}

// The vector of x that a pick reads.
__device__ inline unsigned x_of(const Params& params, unsigned pick) {
    return pick * params.x_vectors / params.n_used;
}
