// Which ids a row may draw.
#pragma once

#include "shared/state.cuh"

// A bit an id for ids first..first+4, `first` a multiple of 4: 1 where a row that draws as `how` says may draw it.
// masks [slots, ceil(n_vocab / 32)]: a bit an id.
__device__ inline unsigned allowed(const unsigned* masks, unsigned n_vocab, unsigned how, unsigned slot, unsigned first) {
    if ((how & MASKED) == 0 || first >= n_vocab) {
        return 0xf;
    }
    return masks[slot * ((n_vocab + 31) / 32) + first / 32] >> (first % 32);
}
