// The rows and states as kernels see them that do not advance them.
#pragma once

#include "shared/state.cuh"

__device__ inline unsigned row_slot(const Batch* batch, unsigned row) {
    // Both entries are loaded, so that neither waits for `chunk`.
    const unsigned first = batch->rows[0].slot, own = batch->rows[row % 64].slot;
    return batch->chunk == 1 ? first : own;
}

// Whether the row has ended: it then does no work.
__device__ inline bool row_done(const Batch* batch, unsigned row) {
    return batch->states[row_slot(batch, row)].done != 0;
}
