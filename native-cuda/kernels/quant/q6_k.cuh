// Q6_K: nibbles, two high bits, i8 scales of both halves a block, f16 d a superblock.
#pragma once

constexpr unsigned BITS = 6;
constexpr int OFFSET = 0;
constexpr bool HAS_MIN = false;
constexpr bool HAS_SUBS = true;
constexpr bool HAS_SUPERS = true;

#include "shared/blocks.cuh"

// The two lowest bits of each byte.
constexpr unsigned PAIRS = 0x03030303u;

// Each byte (0 to 63) minus 32, as int8.
__device__ inline unsigned centred(unsigned q) {
    return ((q | 0x80808080u) - 0x20202020u) ^ 0x80808080u;
}

__device__ inline uint4 centred(uint4 q) {
    return make_uint4(centred(q.x), centred(q.y), centred(q.z), centred(q.w));
}

__device__ inline Block load_block(const Matrix& m, unsigned row, unsigned place, unsigned block) {
    const uint4 q = quants_of(m, row, place);
    const uint4 low = with_high(nibbles(q, 0), high_of(m, row, 2 * place), 0, 2, PAIRS);
    const uint4 high = with_high(nibbles(q, 4), high_of(m, row, 2 * place + 1), 0, 2, PAIRS);
    // Padding blocks read the row's last entry; their scales are 0.
    const unsigned entry = min(block / 8, 2 * m.params.planes.supers_stride - 1);
    const float d = half_to_float(load16(supers_of(m, row), entry));
    const unsigned scales = load16(scales_of(m, row), place);
    return {centred(low), centred(high), d, 0.0f, (int)(scales << 24) >> 24, (int)(scales << 16) >> 24};
}
