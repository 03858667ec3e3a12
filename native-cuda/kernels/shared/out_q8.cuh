// Output of an operation as int8 blocks of 32 values. All lanes of a warp call `emit` together; `first` is 4 * lane plus a multiple of 32, so 8
// neighbouring lanes hold a block. Columns from the width on hold 0.
//
// q [rows, places, 8] words of four int8 each, s [rows, places]: bits of d, sum. places = segments * segment_len, interleaved; padding places are
// never written and stay 0.
#pragma once

#include "shared/exact.cuh"
#include "shared/quantise.cuh"

#define OUT_POINTERS unsigned *__restrict__ out_q, uint2 *__restrict__ out_s
#define OUT Q8Rows{out_q, out_s}

struct Q8Rows {
    unsigned* q;
    uint2* s;
};

__device__ inline void emit(const Params& params, Q8Rows out, unsigned row, unsigned lane, unsigned first, float4 values) {
    unsigned amax = max(max(magnitude(values.x), magnitude(values.y)), max(magnitude(values.z), magnitude(values.w)));
    for (unsigned step = 1; step < 8; step *= 2) {
        amax = max(amax, __shfl_xor_sync(0xffffffffu, amax, step));
    }
    int4 q = make_int4(0, 0, 0, 0);
    unsigned d = 0;
    if (amax >= INFINITY_BITS) {
        d = NAN_BITS;
    } else if (amax >= SMALLEST_BITS) {
        d = __float_as_uint(__uint_as_float(amax) * ONE_127TH);
        q = quantised(values, product(127.0f, exact_recip(__uint_as_float(amax))));
    }
    int sum = q.x + q.y + q.z + q.w;
    for (unsigned step = 1; step < 8; step *= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
    }
    if (first < params.width) {
        const unsigned block = first / 32;
        const unsigned place = block % params.segment_len * params.segments + block / params.segment_len;
        const unsigned at = row * params.segments * params.segment_len + place;
        out.q[8 * at + lane % 8] = packed(q);
        if (lane % 8 == 0) {
            out.s[at] = make_uint2(d, (unsigned)sum);
        }
    }
}
