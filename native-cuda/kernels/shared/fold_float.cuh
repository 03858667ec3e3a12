// Folds a segment of a row of float weights over TILE rows of f32 activations, value by value. Needs TILE and a format, which defines
//   weights4(m, row, place, block, group)   values 4 group .. 4 group + 4 of a block
//   rounded(x)                              the activation as the format takes it
#pragma once

#include "shared/exact.cuh"
#include "shared/planes.cuh"

#define X_POINTERS const float4 *__restrict__ x_values
#define X_VALUES {x_values}

struct X {
    // [rows, k / 4]
    const float4* values;
};

// A row of x may be named more than once.
__device__ inline void fold(
    const Matrix& m, const X& x, unsigned row, unsigned segment, const unsigned (&x_rows)[TILE], float (&acc)[TILE]) {
    const unsigned first = segment * m.params.segment_len;
    const unsigned end = min(first + m.params.segment_len, m.params.blocks);
    for (unsigned block = first; block < end; block++) {
        const unsigned place = (block - first) * m.params.segments + segment;
#pragma unroll
        for (unsigned group = 0; group < 8; group++) {
            const float4 w = weights4(m, row, place, block, group);
#pragma unroll
            for (unsigned r = 0; r < TILE; r++) {
                const float4 v = __ldg(&x.values[(x_rows[r] * m.params.blocks + block) * 8 + group]);
                acc[r] = acc[r] + product(w.x, rounded(v.x));
                acc[r] = acc[r] + product(w.y, rounded(v.y));
                acc[r] = acc[r] + product(w.z, rounded(v.z));
                acc[r] = acc[r] + product(w.w, rounded(v.w));
            }
        }
    }
}
