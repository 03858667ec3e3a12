// Copies of blocks to the stages of matmul_mma.
#pragma once

#include "shared/mma_cut.cuh"

// What a lane of a group copies: of the weight, of all scales and of x always the blocks of one segment of the four.
struct Copies {
    // Parts of 16 bytes of the weight's blocks and of those of x, and blocks whose scales are copied.
    static constexpr unsigned N_PARTS = ROWS * 4 * QUANT_PARTS / GROUP_LANES;
    static constexpr unsigned N_SCALES = ROWS * 4 / GROUP_LANES;
    static constexpr unsigned N_X = TILE * 8 / GROUP_LANES;
    static constexpr unsigned N_X_SCALES = TILE * 4 / GROUP_LANES;
    static_assert(N_PARTS > 0 && N_SCALES > 0 && N_X > 0 && N_X_SCALES > 0);
    static constexpr unsigned PARTS = 4 * QUANT_PARTS;
    // Rows that the lanes of a group copy at once, by the number of lanes a row.
    static constexpr unsigned ROWS_AT_ONCE = GROUP_LANES / PARTS, SCALES_AT_ONCE = GROUP_LANES / 4, X_AT_ONCE = GROUP_LANES / 8;

    const Matrix& m;
    const uint4* x_q;
    const uint2* x_s;
    unsigned lane;
    // Where the lane's rows begin in what is copied.
    unsigned quants_at[N_PARTS], high_at[N_SCALES], scales_at[N_SCALES], supers_at[N_SCALES], x_at[N_X], x_scales_at[N_X_SCALES];
    // Bytes from a stage's start to the lane's first part, scales, part of x, scales of x.
    unsigned part_to, scales_to, x_to, x_scales_to;

    __device__ Copies(const Matrix& m, const uint4* x_q, const uint2* x_s, unsigned lane, unsigned first_row, unsigned first_x, unsigned last_x)
        : m(m), x_q(x_q), x_s(x_s), lane(lane) {
        const Params& params = m.params;
        const unsigned places = params.segments * params.segment_len;
        // Rows past the last are copied as the last one again.
        for (unsigned i = 0; i < N_PARTS; i++) {
            quants_at[i] = min(first_row + lane / PARTS + i * ROWS_AT_ONCE, params.rows - 1) * params.planes.quants_stride;
        }
        for (unsigned i = 0; i < N_SCALES; i++) {
            const unsigned row = min(first_row + lane / 4 + i * SCALES_AT_ONCE, params.rows - 1);
            high_at[i] = params.planes.high_offset + row * params.planes.high_stride;
            scales_at[i] = params.planes.scales_offset + row * params.planes.scales_stride;
            supers_at[i] = params.planes.supers_offset + row * params.planes.supers_stride;
        }
        for (unsigned i = 0; i < N_X; i++) {
            x_at[i] = min(first_x + lane / 8 + i * X_AT_ONCE, last_x) * places * 2;
        }
        for (unsigned i = 0; i < N_X_SCALES; i++) {
            x_scales_at[i] = min(first_x + lane / 4 + i * SCALES_AT_ONCE, last_x) * places;
        }
        // Neighbouring rows have their parts at other banks.
        const unsigned local = lane / PARTS, part = lane % PARTS;
        part_to = (local * PARTS + (part ^ (QUANT_PARTS == 1 ? local / 2 % 4 : local % 8))) * 16;
        const unsigned x_row = lane / 8;
        x_to = X_AT + (x_row * 8 + (lane % 8 ^ x_row % 8)) * 16;
        const unsigned row = lane / 4;
        scales_to = SCALES_AT + scales_index(lane % 4, row) * 4 * SCALE_WORDS;
        x_scales_to = X_SCALES_AT + (lane % 4 * TILE + row) * 8;
        keep(part_to);
        keep(scales_to);
        keep(x_to);
        keep(x_scales_to);
    }

    // Bytes from the lane's first scales to its `i`th.
    __device__ static constexpr unsigned scales_step(unsigned i) {
        return (scales_index(0, i * SCALES_AT_ONCE) - scales_index(0, 0)) * 4 * SCALE_WORDS;
    }

    // Segment `i` of the four from `first` on; the last one again where there are fewer.
    __device__ unsigned segment(unsigned first, unsigned i) const {
        return min(first + i, m.params.segments - 1);
    }

    __device__ unsigned entry(unsigned segment, unsigned t) const {
        return min((segment * m.params.segment_len + t) / 8, m.params.planes.supers_stride * (HAS_SUBS ? 2 : 1) - 1);
    }

    // Begins the copies of block `t` of four segments.
    __device__ void begin(char* stage, unsigned first_segment, unsigned t) const {
        const unsigned start = t * m.params.segments;
        const unsigned part = lane % PARTS;
        const unsigned part_at = (start + segment(first_segment, part / QUANT_PARTS)) * QUANT_PARTS + part % QUANT_PARTS;
#pragma unroll
        for (unsigned i = 0; i < N_PARTS; i++) {
            // Rows a multiple of 8 apart lie alike; 4 apart, parts are at the other half of the banks.
            const unsigned to = ROWS_AT_ONCE % 8 == 0 ? part_to : part_to ^ (i * ROWS_AT_ONCE % 8 * 16);
            copy_async<16, false>(stage + to + i * ROWS_AT_ONCE * PARTS * 16, &m.quants[quants_at[i] + part_at]);
        }
        const unsigned own = segment(first_segment, lane % 4), place = start + own;
#pragma unroll
        for (unsigned i = 0; i < N_SCALES; i++) {
            if constexpr (HIGH_WORDS > 0) {
                char* to = stage + HIGH_AT + (lane + i * GROUP_LANES) * 4 * HIGH_WORDS;
                copy_async<4 * HIGH_WORDS, false>(to, &m.planes[high_at[i] + place * HIGH_WORDS]);
            }
            char* scales = stage + scales_to + scales_step(i);
            copy_async<4, false>(scales, &m.planes[scales_at[i] + (HAS_MIN && !HAS_SUPERS ? place : place / 2)]);
            if constexpr (HAS_SUPERS) {
                copy_async<4, false>(scales + 4, &m.planes[supers_at[i] + (HAS_SUBS ? entry(own, t) / 2 : entry(own, t))]);
            }
        }
        const unsigned x_part_at = (start + segment(first_segment, lane % 8 / 2)) * 2 + lane % 2;
#pragma unroll
        for (unsigned i = 0; i < N_X; i++) {
            const unsigned to = X_AT_ONCE % 8 == 0 ? x_to : x_to ^ (i * X_AT_ONCE % 8 * 16);
            copy_async<16, true>(stage + to + i * X_AT_ONCE * 128, &x_q[x_at[i] + x_part_at]);
        }
#pragma unroll
        for (unsigned i = 0; i < N_X_SCALES; i++) {
            copy_async<8, true>(stage + x_scales_to + i * SCALES_AT_ONCE * 8, &x_s[x_scales_at[i] + place]);
        }
    }

    // Decodes in place the scales that this lane has copied.
    __device__ void decode(char* stage, unsigned first_segment, unsigned t) const {
        const unsigned own = segment(first_segment, lane % 4);
        const unsigned scales_shift = HAS_MIN && !HAS_SUPERS ? 0 : 16 * ((t * m.params.segments + own) % 2);
        const unsigned supers_shift = HAS_SUBS ? 16 * (entry(own, t) % 2) : 0;
#pragma unroll
        for (unsigned i = 0; i < N_SCALES; i++) {
            char* at = stage + scales_to + scales_step(i);
            if constexpr (SCALE_WORDS == 2) {
                const uint2 raw = *reinterpret_cast<uint2*>(at);
                *reinterpret_cast<uint2*>(at) = decoded_scales(raw.x, scales_shift, raw.y, supers_shift);
            } else {
                unsigned* word = reinterpret_cast<unsigned*>(at);
                *word = decoded_scales(*word, scales_shift, 0, 0).x;
            }
        }
        if constexpr (HAS_MIN) {
#pragma unroll
            for (unsigned i = 0; i < N_X_SCALES; i++) {
                uint2* scales = reinterpret_cast<uint2*>(stage + x_scales_to + i * SCALES_AT_ONCE * 8);
                scales->y = __float_as_uint((float)(int)scales->y);
            }
        }
    }
};
