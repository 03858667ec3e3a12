// Where a row stands in its sequence.
#pragma once

#include "shared/running.cuh"

__device__ inline unsigned row_position(const Batch* batch, unsigned row) {
    const unsigned first = batch->states[row_slot(batch, row)].position;
    return batch->chunk == 1u ? first + row : first;
}
