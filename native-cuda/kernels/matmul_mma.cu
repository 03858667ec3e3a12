// What matmul.cu computes, for integer weights and many rows of x: int8 tensor cores give a block's integer sum, the rest is as it is
// there, so the bits are the same.
// A group of warps folds four segments after another, a subtree, for ROWS rows of the weight and TILE rows of x; the groups share out
// the eight subtrees. Blocks of a step come to shared memory by copies that are begun STAGES - 1 steps ahead.
// Grid: [x, y, ceil(x rows / TILE)], x * y blocks cover the rows, `rows_a_group` being ROWS. Shared memory: SHARED_BYTES, which the launch gives.
// Macros: TILE (8, 16, 32 or 64), QUANT_<format> of integers.
#include "shared/matmul_params.cuh"
#include "quant/format.cuh"
#include "shared/mma_copies.cuh"
#include "shared/mma_fold.cuh"

DYNAMIC_SHARED(SHARED_BYTES);

// Barrier of a group's lanes.
__device__ inline void sync_group(unsigned group) {
    if constexpr (GROUP_LANES == 32) {
        __syncwarp();
    } else if constexpr (GROUPS == 1) {
        __syncthreads();
    } else {
#ifdef EMULATED
        __syncthreads();
#else
        asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(GROUP_LANES) : "memory");
#endif
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
