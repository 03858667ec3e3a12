// Products of int8 matrices by a warp: all of its lanes call these functions. Lane l is of group l / 4, place l % 4.
#pragma once

#include "shared/async_copy.cuh"

#ifdef EMULATED
// What each lane of a block shows the others of its warp.
static unsigned mma_operands[1024][6];
static const void* matrix_rows[1024];
#endif

// Four matrices of 8 rows of 16 bytes: lane l names row l % 8 of matrix l / 8 and gets word `place` of row `group` of each.
__device__ inline void load_matrices(const void* row, unsigned (&words)[4]) {
#ifdef EMULATED
    const unsigned lane = threadIdx.x % 32, first = threadIdx.x - lane;
    matrix_rows[threadIdx.x] = row;
    __syncwarp();
    for (unsigned i = 0; i < 4; i++) {
        words[i] = static_cast<const unsigned*>(matrix_rows[first + 8 * i + lane / 4])[lane % 4];
    }
    __syncwarp();
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(shared_address(row))
                 : "memory");
#endif
}

#ifdef EMULATED
// The product of n_a / 2 times 16 columns of `a` with as many rows of `b`.
inline int4 emulated_mma(const unsigned* a, unsigned n_a, const unsigned* b, int start) {
    const unsigned lane = threadIdx.x % 32, first = threadIdx.x - lane;
    for (unsigned i = 0; i < n_a; i++) {
        mma_operands[threadIdx.x][i] = a[i];
    }
    for (unsigned i = 0; i < n_a / 2; i++) {
        mma_operands[threadIdx.x][4 + i] = b[i];
    }
    __syncwarp();
    int sums[4] = {start, start, start, start};
    for (unsigned i = 0; i < 4; i++) {
        for (unsigned half = 0; half < n_a / 2; half++) {
            for (unsigned place = 0; place < 4; place++) {
                const unsigned x = mma_operands[first + lane / 4 * 4 + place][2 * half + i / 2];
                const unsigned y = mma_operands[first + (lane % 4 * 2 + i % 2) * 4 + place][4 + half];
                sums[i] = __dp4a((int)x, (int)y, sums[i]);
            }
        }
    }
    __syncwarp();
    return make_int4(sums[0], sums[1], sums[2], sums[3]);
}
#endif

// start + A B for A of 16 x 32, B of 32 x 8. a: columns 4 place .. of rows `group` and `group` + 8, then columns 16 + 4 place .. of them.
// b: rows 4 place .. and 16 + 4 place .. of column `group`. Gives columns 2 place and 2 place + 1 of row `group`, then of row `group` + 8.
__device__ inline int4 mma_32(const unsigned (&a)[4], const unsigned (&b)[2], int start) {
#ifdef EMULATED
    return emulated_mma(a, 4, b, start);
#else
    int4 sums;
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
        : "=r"(sums.x), "=r"(sums.y), "=r"(sums.z), "=r"(sums.w)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(start));
    return sums;
#endif
}

// A B for A of 16 x 16, B of 16 x 8: the half of the above that begins at column 0.
__device__ inline int4 mma_16(unsigned a_first, unsigned a_second, unsigned b) {
#ifdef EMULATED
    const unsigned a[2] = {a_first, a_second};
    return emulated_mma(a, 2, &b, 0);
#else
    int4 sums;
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};"
        : "=r"(sums.x), "=r"(sums.y), "=r"(sums.z), "=r"(sums.w)
        : "r"(a_first), "r"(a_second), "r"(b), "r"(0));
    return sums;
#endif
}
