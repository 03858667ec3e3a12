// What matmul.cu computes, for integer weights and many rows of x: int8 tensor cores give a block's integer sum, the rest is as it is
// there, so the bits are the same.
// A group of warps folds four segments after another, a subtree, for ROWS rows of the weight and TILE rows of x; the groups share out
// the eight subtrees. Blocks of a step come to shared memory by copies that are begun STAGES - 1 steps ahead.
// Grid: [x, y, ceil(x rows / TILE)], x * y blocks cover the rows, `rows_a_group` being ROWS. Shared memory: SHARED_BYTES, which the launch gives.
// Macros: TILE (8, 16, 32 or 64), QUANT_<format> of integers.
#include "shared/matmul_params.cuh"
#include "quant/format.cuh"
#include "shared/mma_weights.cuh"

constexpr unsigned LANES = 256;
// Groups of warps; warps of a group along the rows of x and along those of the weight.
constexpr unsigned GROUPS = TILE == 8 ? 8 : TILE == 16 ? 4 : TILE == 32 ? 2 : 1;
constexpr unsigned WARPS_X = TILE <= 16 ? 1 : 2;
constexpr unsigned WARPS_ROWS = LANES / 32 / GROUPS / WARPS_X;
constexpr unsigned GROUP_LANES = LANES / GROUPS;
// Tiles of 16 rows of the weight and of 8 rows of x a warp has.
constexpr unsigned ROW_TILES = TILE == 8 ? 2 : 1;
constexpr unsigned TILES = TILE / 8 / WARPS_X;
constexpr unsigned ROWS = 16 * ROW_TILES * WARPS_ROWS;
// Results a lane has: four of each pair of tiles.
constexpr unsigned SUMS = ROW_TILES * TILES * 4;
// Subtrees that a group folds one after another.
constexpr unsigned PASSES = 8 / GROUPS;
constexpr unsigned LEVELS = PASSES == 8 ? 3 : PASSES == 4 ? 2 : PASSES == 2 ? 1 : 0;
constexpr unsigned STAGES = 3;
constexpr unsigned BLOCKS_AN_SM = 2;

// A stage of a group, in bytes: weights [ROWS, 4 segments], high [ROWS, 4], scales [4, ROWS / 16, 8, 2], x [TILE, 4], and its scales [4, TILE].
constexpr unsigned HIGH_AT = ROWS * 4 * 16 * QUANT_PARTS;
constexpr unsigned SCALES_AT = HIGH_AT + ROWS * 4 * 4 * HIGH_WORDS;
constexpr unsigned X_AT = SCALES_AT + ROWS * 4 * 4 * SCALE_WORDS;
constexpr unsigned X_SCALES_AT = X_AT + TILE * 4 * 32;
constexpr unsigned STAGE_BYTES = X_SCALES_AT + TILE * 4 * 8;
// Then what passes have left: [LEVELS, SUMS, LANES]. At last the groups' sums [GROUPS, TILE, SUMS_STRIDE] take the stages' place.
constexpr unsigned LEFT_AT = GROUPS * STAGES * STAGE_BYTES;
constexpr unsigned SUMS_STRIDE = ROWS + 4;
constexpr unsigned SHARED_BYTES = LEFT_AT + LEVELS * SUMS * LANES * 4;
static_assert(GROUPS * TILE * SUMS_STRIDE * 4 <= LEFT_AT);

DYNAMIC_SHARED(SHARED_BYTES);

// Which of a stage's scales are those of a row's block: two rows that lie in one fragment are neighbours.
__device__ constexpr unsigned scales_index(unsigned segment, unsigned row) {
    return ((segment * (ROWS / 16) + row / 16) * 8 + row % 8) * 2 + row / 8 % 2;
}

// Barrier of a group's lanes.
__device__ inline void sync_group(unsigned group) {
    if constexpr (GROUP_LANES == 32) {
        __syncwarp();
    } else {
#ifdef EMULATED
        __syncthreads();
#else
        asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(GROUP_LANES) : "memory");
#endif
    }
}

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
            quants_at[i] = min(first_row + lane / PARTS + i * ROWS_AT_ONCE, params.rows - 1) * params.quants_stride;
        }
        for (unsigned i = 0; i < N_SCALES; i++) {
            const unsigned row = min(first_row + lane / 4 + i * SCALES_AT_ONCE, params.rows - 1);
            high_at[i] = params.high_offset + row * params.high_stride;
            scales_at[i] = params.scales_offset + row * params.scales_stride;
            supers_at[i] = params.supers_offset + row * params.supers_stride;
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
        return min((segment * m.params.segment_len + t) / 8, m.params.supers_stride * (HAS_SUBS ? 2 : 1) - 1);
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
    for (unsigned level = 0; level < LEVELS; level++) {
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

// out: [x rows, out_width]
extern "C" __global__ __launch_bounds__(LANES, BLOCKS_AN_SM) void kernel_main(
    const Params params, const Batch* __restrict__ batch, const uint4* __restrict__ quants, const unsigned* __restrict__ planes,
    const uint4* __restrict__ x_q, const uint2* __restrict__ x_s, float* __restrict__ out) {
    const unsigned first_row = (blockIdx.y * gridDim.x + blockIdx.x) * ROWS, first_x = blockIdx.z * TILE;
    if (first_row >= params.rows) {
        return;
    }
    const unsigned group = threadIdx.x / GROUP_LANES, warp = threadIdx.x % GROUP_LANES / 32;
    const Matrix m = {params, quants, planes};
    const Copies copies(m, x_q, x_s, threadIdx.x % GROUP_LANES, first_row, first_x, batch->n_rows - 1);
    const Fold fold(threadIdx.x % 32, warp % WARPS_ROWS * ROW_TILES * 16, warp / WARPS_ROWS * TILES * 8);
    char* const stages = reinterpret_cast<char*>(shared_memory) + group * STAGES * STAGE_BYTES;

    // Passes that have segments in any group, and the step whose copies begin next.
    const unsigned n_passes = min(PASSES, (params.segments + 3) / 4);
    unsigned next_pass = 0, next_t = 0, next_stage = 0;
    const auto begin_next = [&] {
        if (next_pass < n_passes) {
            copies.begin(stages + next_stage * STAGE_BYTES, (group * PASSES + next_pass) * 4, next_t);
            next_stage = next_stage + 1 == STAGES ? 0 : next_stage + 1;
            if (++next_t == params.segment_len) {
                next_t = 0;
                next_pass++;
            }
        }
        close_copies();
    };
    for (unsigned i = 0; i < STAGES - 1; i++) {
        begin_next();
    }
    // The first copies are on their way while this waits for the states.
    if (!tile_runs(batch, first_x)) {
        await_copies<0>();
        return;
    }

    float* const left = reinterpret_cast<float*>(reinterpret_cast<char*>(shared_memory) + LEFT_AT) + threadIdx.x;
    float sums[SUMS];
    unsigned stage = 0;
    for (unsigned pass = 0; pass < PASSES; pass++) {
        const unsigned first_segment = (group * PASSES + pass) * 4;
        float acc[4][SUMS] = {};
        if (pass < n_passes) {
            for (unsigned t = 0; t < params.segment_len; t++) {
                char* const at = stages + stage * STAGE_BYTES;
                stage = stage + 1 == STAGES ? 0 : stage + 1;
                await_copies<STAGES - 2>();
                copies.decode(at, first_segment, t);
                // All lanes have the stage, and are done with the last one, which is the next to be filled.
                sync_group(group);
                begin_next();
                fold.add(at, acc);
            }
        }
        end_pass(pass, params.segments - min(first_segment, params.segments), acc, left, sums);
    }

    // [GROUPS, TILE, SUMS_STRIDE]
    float* const all = reinterpret_cast<float*>(shared_memory);
    await_copies<0>();
    __syncthreads();
#pragma unroll
    for (unsigned i = 0; i < SUMS; i++) {
        const unsigned row = fold.warp_row + i / 4 / TILES * 16 + i % 4 / 2 * 8 + fold.lane / 4;
        const unsigned x_row = fold.warp_x + i / 4 % TILES * 8 + fold.lane % 4 * 2 + i % 2;
        all[(group * TILE + x_row) * SUMS_STRIDE + row] = sums[i];
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < ROWS * TILE; i += LANES) {
        const unsigned row = i % ROWS, x_row = i / ROWS;
        if (first_row + row < params.rows && row_runs(batch, first_x + x_row)) {
            float parts[GROUPS];
#pragma unroll
            for (unsigned g = 0; g < GROUPS; g++) {
                parts[g] = all[(g * TILE + x_row) * SUMS_STRIDE + row];
            }
#pragma unroll
            for (unsigned n = GROUPS; n > 1; n /= 2) {
#pragma unroll
                for (unsigned g = 0; g < n / 2; g++) {
                    parts[g] = parts[2 * g] + parts[2 * g + 1];
                }
            }
            float* to = &out[out_row(params, batch, first_x + x_row) * params.out_width + params.out_offset + first_row + row];
            *to = params.accumulate == 1 ? *to + parts[0] : parts[0];
        }
    }
}
