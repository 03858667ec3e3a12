// Folds what lies in the stages of matmul_mma.
#pragma once

#include "shared/mma_cut.cuh"

// A step: adds the terms of a block of each of four segments.
struct Fold {
    // Lane of the warp; the warp's rows.
    unsigned lane, warp_row, warp_x;
    // Bytes from a stage's start to what the lane loads first: rows of weights and of x as it names them, scales and those of x.
    unsigned rows_from, high_from, scales_from, x_rows_from, x_scales_from;

    __device__ Fold(unsigned lane, unsigned warp_row, unsigned warp_x) : lane(lane), warp_row(warp_row), warp_x(warp_x) {
        const unsigned group = lane / 4, row = warp_row + lane % 16;
        rows_from = BITS == 8 ? (row * 8 + (lane / 16 ^ row % 8)) * 16 : (row * 4 + (lane / 16 ^ row / 2 % 4)) * 16;
        high_from = HIGH_AT + (warp_row + group) * 16 * HIGH_WORDS;
        scales_from = SCALES_AT + scales_index(0, warp_row + group) * 4 * SCALE_WORDS;
        // The halves of a block, then those of the next tile's; with one tile those of the next segment's.
        const unsigned x_row = warp_x + lane % 8 + (TILES == 1 ? 0 : lane / 16 * 8);
        x_rows_from = X_AT + (x_row * 8 + ((TILES == 1 ? lane / 8 : lane / 8 % 2) ^ x_row % 8)) * 16;
        x_scales_from = X_SCALES_AT + (warp_x + lane % 4 * 2) * 8;
        keep(rows_from);
        keep(scales_from);
        keep(x_rows_from);
        keep(x_scales_from);
    }

    __device__ void add(const char* stage, float (&acc)[4][SUMS]) const {
        unsigned words[ROW_TILES][4] = {};
        unsigned x_words[4] = {};
#pragma unroll
        for (unsigned s = 0; s < 4; s++) {
            unsigned a[ROW_TILES][4];
            Scales scales[ROW_TILES][2];
#pragma unroll
            for (unsigned r = 0; r < ROW_TILES; r++) {
                load_weights(stage, s, r, words[r], a[r]);
                load_scales(stage + scales_from + scales_index(s, 16 * r) * 4 * SCALE_WORDS, scales[r]);
            }
#pragma unroll
            for (unsigned n = 0; n < TILES; n++) {
                const unsigned pair = TILES == 1 ? s % 2 : n % 2;
                if (pair == 0) {
                    load_matrices(stage + (x_rows_from ^ (s * 32)) + n * 8 * 128, x_words);
                }
                const unsigned b[2] = {x_words[2 * pair], x_words[2 * pair + 1]};
                const uint4 x_scales = *reinterpret_cast<const uint4*>(stage + x_scales_from + (s * TILE + 8 * n) * 8);
#pragma unroll
                for (unsigned r = 0; r < ROW_TILES; r++) {
                    add_terms(a[r], b, scales[r], x_scales, &acc[s][(r * TILES + n) * 4]);
                }
            }
        }
    }

    // The fragment of a tile's blocks of segment s. `words` keep the nibbles of two segments, loaded with the even one.
    __device__ void load_weights(const char* stage, unsigned s, unsigned r, unsigned (&words)[4], unsigned (&a)[4]) const {
        if constexpr (BITS == 8) {
            load_matrices(stage + (rows_from ^ (s * 32)) + r * 16 * 128, a);
        } else {
            if (s % 2 == 0) {
                load_matrices(stage + (rows_from ^ (s * 16)) + r * 16 * 64, words);
            }
#pragma unroll
            for (unsigned i = 0; i < 2; i++) {
                unsigned bits[2] = {};
                const char* high = stage + high_from + ((16 * r + 8 * i) * 4 + s) * 4 * HIGH_WORDS;
                if constexpr (HIGH_WORDS == 1) {
                    bits[0] = *reinterpret_cast<const unsigned*>(high);
                } else if constexpr (HIGH_WORDS == 2) {
                    const uint2 two = *reinterpret_cast<const uint2*>(high);
                    bits[0] = two.x;
                    bits[1] = two.y;
                }
                unpack(words[s % 2 * 2 + i], bits, lane % 4, a[i], a[2 + i]);
            }
        }
    }

    __device__ static void load_scales(const char* from, Scales (&scales)[2]) {
        if constexpr (SCALE_WORDS == 2) {
            const uint4 both = *reinterpret_cast<const uint4*>(from);
            scales[0] = scales_of_words(both.x, both.y);
            scales[1] = scales_of_words(both.z, both.w);
        } else {
            const uint2 both = *reinterpret_cast<const uint2*>(from);
            scales[0] = scales_of_words(both.x, 0);
            scales[1] = scales_of_words(both.y, 0);
        }
    }

    __device__ static void add_terms(
        const unsigned (&a)[4], const unsigned (&b)[2], const Scales (&scales)[2], uint4 x_scales, float* acc) {
        float sums[4];
        if constexpr (HAS_SUBS) {
            const int4 low = mma_16(a[0], a[1], b[0]), high = mma_16(a[2], a[3], b[1]);
            sums[0] = (float)(scales[0].low_scale * low.x + scales[0].high_scale * high.x);
            sums[1] = (float)(scales[0].low_scale * low.y + scales[0].high_scale * high.y);
            sums[2] = (float)(scales[1].low_scale * low.z + scales[1].high_scale * high.z);
            sums[3] = (float)(scales[1].low_scale * low.w + scales[1].high_scale * high.w);
        } else {
            const int4 bits = mma_32(a, b, START_BITS);
            sums[0] = sum_value(bits.x);
            sums[1] = sum_value(bits.y);
            sums[2] = sum_value(bits.z);
            sums[3] = sum_value(bits.w);
        }
#pragma unroll
        for (unsigned i = 0; i < 4; i++) {
            const Scales& w = scales[i / 2];
            const float dx = __uint_as_float(i % 2 == 0 ? x_scales.x : x_scales.z);
            float term = product(w.dw * dx, sums[i]);
            if constexpr (HAS_MIN) {
                term = term + product(w.dm * dx, __uint_as_float(i % 2 == 0 ? x_scales.y : x_scales.w));
            }
            acc[i] = acc[i] + term;
        }
    }
};

// Adds up a pass's four segments and, where the tree has it so, what passes before have left: an odd pass is added to the one before,
// every second pair of them to the pair before, and so on. The last pass makes it the group's sum.
__device__ inline void end_pass(
    unsigned pass, unsigned n_segments, float (&acc)[4][SUMS], float* left, float (&sums)[SUMS]) {
    if (n_segments < 4) {
#pragma unroll
        for (unsigned i = 0; i < 4 * SUMS; i++) {
            acc[i / SUMS][i % SUMS] = i / SUMS < n_segments ? acc[i / SUMS][i % SUMS] : 0.0f;
        }
    }
#pragma unroll
    for (unsigned i = 0; i < SUMS; i++) {
        sums[i] = (acc[0][i] + acc[1][i]) + (acc[2][i] + acc[3][i]);
    }
#pragma unroll
    for (unsigned level = 0; level != LEVELS; level++) {
        if ((pass >> level & 1) == 0) {
#pragma unroll
            for (unsigned i = 0; i < SUMS; i++) {
                left[(level * SUMS + i) * LANES] = sums[i];
            }
            break;
        }
#pragma unroll
        for (unsigned i = 0; i < SUMS; i++) {
            sums[i] = left[(level * SUMS + i) * LANES] + sums[i];
        }
    }
}
