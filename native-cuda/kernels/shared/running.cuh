// The rows and states as kernels see them that do not advance them.
#pragma once

#include "shared/state.cuh"

__device__ inline unsigned row_slot(const Batch* batch, unsigned row) {
    return batch->rows[batch->chunk == 1 ? 0 : row].slot;
}

// Whether the row has ended: it then does no work.
__device__ inline bool row_done(const Batch* batch, unsigned row) {
    return batch->states[row_slot(batch, row)].done != 0;
}
