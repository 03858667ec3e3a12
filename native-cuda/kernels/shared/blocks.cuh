// A block of 32 integer weights, decoded. A format's file defines
//   BITS        of an integer: 4 to 6, low nibbles first, or 8
//   OFFSET      what is taken off every integer
//   HAS_MIN     whether weights have an offset dm of their own
//   HAS_SUBS    whether the halves have integer scales
//   HAS_SUPERS  whether eight blocks share an entry of `supers`
//   load_block
// and includes this file in between.
#pragma once

#include "shared/exact.cuh"
#include "shared/planes.cuh"

struct Block {
    // Weights 0..16 and 16..32, int8.
    uint4 low, high;
    float dw, dm;
    // Scales of the halves.
    int low_scale, high_scale;
};

// Block `block` of a row, which lies at `place`.
__device__ inline Block load_block(const Matrix& m, unsigned row, unsigned place, unsigned block);

// The lowest bit of each byte.
constexpr unsigned ONES = 0x01010101u;

// The low nibble of each byte after a shift.
__device__ inline uint4 nibbles(uint4 q, unsigned shift) {
    const unsigned mask = 0x0f0f0f0fu;
    return make_uint4((q.x >> shift) & mask, (q.y >> shift) & mask, (q.z >> shift) & mask, (q.w >> shift) & mask);
}

// Nibbles with bits above them: word j takes those of `bits` that the mask selects after a shift by first + j * step.
__device__ inline uint4 with_high(uint4 q, unsigned bits, unsigned first, unsigned step, unsigned mask) {
    return make_uint4(
        q.x | ((bits >> first) & mask) << 4,
        q.y | ((bits >> (first + step)) & mask) << 4,
        q.z | ((bits >> (first + 2 * step)) & mask) << 4,
        q.w | ((bits >> (first + 3 * step)) & mask) << 4);
}

// Scale and minimum of a block of Q4_K or Q5_K.
__device__ inline float2 k_scales(const Matrix& m, unsigned row, unsigned place, unsigned block) {
    // Padding blocks read the last entry; their integers are 0.
    const unsigned entry = min(block / 8, m.params.planes.supers_stride - 1);
    const float2 d = halves_to_floats(__ldg(&supers_of(m, row)[entry]));
    const unsigned scales = load16(scales_of(m, row), place);
    // Both exact: 11 + 6 significant bits.
    return make_float2(d.x * (float)(scales & 0xffu), -(d.y * (float)(scales >> 8)));
}

// Values 4 group .. 4 group + 4 of a block.
__device__ inline float4 weights4(const Matrix& m, unsigned row, unsigned place, unsigned block, unsigned group) {
    const Block w = load_block(m, row, place, block);
    const uint4 half = group < 4 ? w.low : w.high;
    const unsigned word = group % 4 < 2 ? (group % 2 == 0 ? half.x : half.y) : (group % 2 == 0 ? half.z : half.w);
    float values[4];
    for (unsigned j = 0; j < 4; j++) {
        const int q = (int)(word << (24 - 8 * j)) >> 24;
        if constexpr (HAS_SUBS) {
            // exact: 11 + 7 significant bits, then 6 more
            values[j] = (w.dw * (float)(group < 4 ? w.low_scale : w.high_scale)) * (float)q;
        } else {
            values[j] = w.dw * (float)(q - OFFSET);
        }
        if constexpr (HAS_MIN) {
            // exact: 17 + 5 significant bits
            values[j] = values[j] + w.dm;
        }
    }
    return make_float4(values[0], values[1], values[2], values[3]);
}
