// Which chunks of the cache a query at a position sees, and how they are shared out to partial results: a unit is
// chunks_per_unit chunks by absolute index, so it never crosses a group of 32 chunks. Needs Params.
#pragma once

constexpr unsigned PAGE = 64;
constexpr unsigned CHUNKS_PER_GROUP = 32;

__device__ inline unsigned first_visible(const Params& params, unsigned position) {
    // window 0: no limit.
    return params.window != 0 && position + 1 > params.window ? position + 1 - params.window : 0;
}

__device__ inline unsigned first_unit(const Params& params, unsigned position) {
    return first_visible(params, position) / PAGE / params.chunks_per_unit;
}

// One past the last unit.
__device__ inline unsigned end_unit(const Params& params, unsigned position) {
    return position / PAGE / params.chunks_per_unit + 1;
}

// Where a head's partial result of a row's unit (counted from the row's first) lies: maximum, sum, weighted values.
__device__ inline unsigned partial_at(const Params& params, unsigned row, unsigned unit, unsigned head) {
    return ((row * params.max_units + unit) * params.n_heads + head) * (params.head_dim + 2);
}
