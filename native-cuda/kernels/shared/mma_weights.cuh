// A format's integers as rows of a matrix for int8 products, and its scales. Needs Params and a format.
#pragma once

#include "shared/blocks.cuh"
#include "shared/mma.cuh"

// Integers are multiplied by 2^SHIFT where it is the sign's place that lies at the top of a byte: the offset is then a flipped bit.
constexpr unsigned SHIFT = OFFSET == 0 ? 0 : 8 - BITS;

// Sums start as the bits of this number, whose last place is worth 2^-SHIFT: as bits they are it plus the sum (below 2^22) over 2^SHIFT.
constexpr float START = 12582912.0f / (float)(1u << SHIFT);
constexpr int START_BITS = 0x4b400000 - ((int)SHIFT << 23);

// exact: the value a sum's bits stand for
__device__ inline float sum_value(int bits) {
    return __int_as_float(bits) - START;
}

// Words of a block's entry in `high`, and of its scales as they lie in shared memory.
constexpr unsigned HIGH_WORDS = BITS == 5 ? 1 : BITS == 6 ? 2 : 0;
constexpr unsigned SCALE_WORDS = HAS_MIN || HAS_SUBS ? 2 : 1;
// Halves of 16 bytes of a block's entry in `quants`.
constexpr unsigned QUANT_PARTS = BITS == 8 ? 2 : 1;

// The integers of word `place` of a block's nibbles as int8: `low` of the weights 4 place .., `high` of 16 + 4 place .. . Not for BITS 8.
__device__ inline void unpack(unsigned q, const unsigned (&bits)[2], unsigned place, unsigned& low, unsigned& high) {
    constexpr unsigned SIGNS = 0x80808080u;
    if constexpr (BITS == 4 && OFFSET != 0) {
        low = ((q << 4) & 0xf0f0f0f0u) ^ SIGNS;
        high = (q & 0xf0f0f0f0u) ^ SIGNS;
    } else if constexpr (BITS == 4) {
        low = q & 0x0f0f0f0fu;
        high = (q >> 4) & 0x0f0f0f0fu;
    } else if constexpr (BITS == 5 && OFFSET != 0) {
        low = (((q << 3) & 0x78787878u) | ((bits[0] << (7 - place)) & SIGNS)) ^ SIGNS;
        high = (((q >> 1) & 0x78787878u) | ((bits[0] << (3 - place)) & SIGNS)) ^ SIGNS;
    } else if constexpr (BITS == 5) {
        low = (q & 0x0f0f0f0fu) | ((bits[0] << (4 - place)) & 0x10101010u);
        high = ((q >> 4) & 0x0f0f0f0fu) | ((bits[0] >> place) & 0x10101010u);
    } else {
        // Minus 32, as int8; the pairs of bits come to the fifth place.
        const unsigned first = (bits[0] >> (2 * place) << 4) & 0x30303030u, second = (bits[1] >> (2 * place) << 4) & 0x30303030u;
        low = (((q & 0x0f0f0f0fu) | first | SIGNS) - 0x20202020u) ^ SIGNS;
        high = ((((q >> 4) & 0x0f0f0f0fu) | second | SIGNS) - 0x20202020u) ^ SIGNS;
    }
}

// Scales of a block from the words of `scales` and `supers` that hold them, where the shifts say: the bits of dw, then those of dm or the
// scales of the halves.
__device__ inline uint2 decoded_scales(unsigned scales, unsigned scales_shift, unsigned supers, unsigned supers_shift) {
    scales >>= scales_shift;
    supers >>= supers_shift;
    if constexpr (HAS_SUPERS && HAS_MIN) {
        // Both exact: 11 + 6 significant bits.
        const float2 d = halves_to_floats(supers);
        return make_uint2(__float_as_uint(d.x * (float)(scales & 0xffu)), __float_as_uint(-(d.y * (float)(scales >> 8 & 0xffu))));
    } else if constexpr (HAS_SUPERS) {
        return make_uint2(__float_as_uint(half_to_float(supers)), scales);
    } else {
        return make_uint2(__float_as_uint(half_to_float(scales)), __float_as_uint(half_to_float(scales >> 16)));
    }
}

// Scales of a block as its terms need them.
struct Scales {
    float dw, dm;
    int low_scale, high_scale;
};

__device__ inline Scales scales_of_words(unsigned first, unsigned second) {
    return {__uint_as_float(first), __uint_as_float(second), (int)(second << 24) >> 24, (int)(second << 16) >> 24};
}
