// Folds a segment of a row of integer weights over TILE rows of int8 activations. Needs TILE and a format.
#pragma once

#include "shared/blocks.cuh"

#define X_POINTERS const uint4 *__restrict__ x_q, const uint2 *__restrict__ x_s
#define X_VALUES {x_q, x_s}

struct X {
    // [rows, places, 2]
    const uint4* q;
    // [rows, places]: bits of d, sum
    const uint2* s;
};

// Blocks whose loads are on their way at once.
constexpr unsigned AHEAD = 4;

__device__ inline int dot16(uint4 w, uint4 x) {
    const int sum = __dp4a((int)w.y, (int)x.y, __dp4a((int)w.x, (int)x.x, 0));
    return __dp4a((int)w.w, (int)x.w, __dp4a((int)w.z, (int)x.z, sum));
}

__device__ inline float term(const Block& w, uint4 low, uint4 high, uint2 scale) {
    const float dx = __uint_as_float(scale.x);
    const int sum = (int)scale.y;
    int isum;
    if constexpr (HAS_SUBS) {
        isum = w.low_scale * dot16(w.low, low) + w.high_scale * dot16(w.high, high);
    } else {
        isum = dot16(w.low, low) + dot16(w.high, high) - OFFSET * sum;
    }
    const float main_term = product(w.dw * dx, (float)isum);
    if constexpr (HAS_MIN) {
        return main_term + product(w.dm * dx, (float)sum);
    } else {
        return main_term;
    }
}

// Adds the terms of N blocks of a segment, from its `t`th on.
template <unsigned N>
__device__ inline void add_blocks(
    const Matrix& m, const X& x, unsigned row, unsigned segment, unsigned t, const unsigned (&x_rows)[TILE], float (&acc)[TILE]) {
    const unsigned segments = m.params.segments, segment_len = m.params.segment_len;
    Block w[N];
#pragma unroll
    for (unsigned i = 0; i < N; i++) {
        w[i] = load_block(m, row, (t + i) * segments + segment, segment * segment_len + t + i);
    }
#pragma unroll
    for (unsigned i = 0; i < N; i++) {
#pragma unroll
        for (unsigned r = 0; r < TILE; r++) {
            const unsigned at = x_rows[r] * segments * segment_len + (t + i) * segments + segment;
            acc[r] = acc[r] + term(w[i], __ldg(&x.q[2 * at]), __ldg(&x.q[2 * at + 1]), __ldg(&x.s[at]));
        }
    }
}

// Folds it, block after block; a row of x may be named more than once.
__device__ inline void fold(
    const Matrix& m, const X& x, unsigned row, unsigned segment, const unsigned (&x_rows)[TILE], float (&acc)[TILE]) {
    unsigned t = 0;
    for (; t + AHEAD <= m.params.segment_len; t += AHEAD) {
        add_blocks<AHEAD>(m, x, row, segment, t, x_rows, acc);
    }
    if (t + 2 <= m.params.segment_len) {
        add_blocks<2>(m, x, row, segment, t, x_rows, acc);
        t += 2;
    }
    if (t < m.params.segment_len) {
        add_blocks<1>(m, x, row, segment, t, x_rows, acc);
    }
}
