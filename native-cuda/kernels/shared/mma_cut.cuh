// How matmul_mma shares out its work, and what lies where in shared memory. Needs TILE and a format.
#pragma once

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

// A stage of a group, in bytes: weights [ROWS, 4 segments], high [ROWS, 4], scales [4, ROWS / 16, 8, 2], x [TILE, 4], and its scales [4, TILE].
constexpr unsigned HIGH_AT = ROWS * 4 * 16 * QUANT_PARTS;
constexpr unsigned SCALES_AT = HIGH_AT + ROWS * 4 * 4 * HIGH_WORDS;
constexpr unsigned X_AT = SCALES_AT + ROWS * 4 * 4 * SCALE_WORDS;
constexpr unsigned X_SCALES_AT = X_AT + TILE * 4 * 32;
constexpr unsigned STAGE_BYTES = X_SCALES_AT + TILE * 4 * 8;
constexpr unsigned BLOCKS_AN_SM = 2;
// What a block may have: on most GPUs all that one may be given, on those of servers from 9.0 on half of a multiprocessor's.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200
constexpr unsigned MOST_SHARED = 113 << 10;
#else
constexpr unsigned MOST_SHARED = 99 << 10;
#endif
// What passes have left: [LEVELS, SUMS, LANES].
constexpr unsigned LEFT_BYTES = LEVELS * SUMS * LANES * 4;
constexpr unsigned STAGES = GROUPS * 3 * STAGE_BYTES + LEFT_BYTES <= MOST_SHARED ? 3 : 2;
// It comes after the stages, whose place the groups' sums [GROUPS, TILE, SUMS_STRIDE] take at last.
constexpr unsigned LEFT_AT = GROUPS * STAGES * STAGE_BYTES;
constexpr unsigned SUMS_STRIDE = ROWS + 4;
constexpr unsigned SHARED_BYTES = LEFT_AT + LEFT_BYTES;
static_assert(SHARED_BYTES <= MOST_SHARED);
static_assert(GROUPS * TILE * SUMS_STRIDE * 4 <= LEFT_AT);

// Which of a stage's scales are those of a row's block: two rows that lie in one fragment are neighbours.
__device__ constexpr unsigned scales_index(unsigned segment, unsigned row) {
    return ((segment * (ROWS / 16) + row / 16) * 8 + row % 8) * 2 + row / 8 % 2;
}
