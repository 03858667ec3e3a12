// The rows and states as kernels see them that do not advance them.
#pragma once

#include "shared/state.cuh"

__device__ unsigned row_slot(const Batch* batch, unsigned row) {
    return batch->rows[batch->chunk == 1 ? row : 0].slot;
}

// Whether the row has ended: it then does no work.
__device__ bool row_done(const Batch* batch, unsigned row) {
    return batch->states[row_slot(batch, row)].done != 0;
}
