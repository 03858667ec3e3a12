// The tree of adjacent pairs over the 256 lanes of a block, once a block; every lane gets the sum.
#pragma once

__device__ inline float tree256(unsigned lane, float value) {
    __shared__ float warps[8];
    // Both lanes of a pair add the same two numbers.
    for (unsigned step = 1; step < 32; step *= 2) {
        value = value + __shfl_xor_sync(0xffffffffu, value, step);
    }
    if (lane % 32 == 0) {
        warps[lane / 32] = value;
    }
    __syncthreads();
    return ((warps[0] + warps[1]) + (warps[2] + warps[3])) + ((warps[4] + warps[5]) + (warps[6] + warps[7]));
}
