// The largest of candidates (order key, token id); ties go to the lowest id.
#pragma once

__device__ inline uint2 better(uint2 a, uint2 b) {
    const bool b_wins = b.x > a.x || (b.x == a.x && b.y < a.y);
    return b_wins ? b : a;
}

__device__ inline uint2 best32(uint2 candidate) {
    for (unsigned step = 16; step > 0; step /= 2) {
        const unsigned key = __shfl_xor_sync(0xffffffff, candidate.x, step);
        const unsigned id = __shfl_xor_sync(0xffffffff, candidate.y, step);
        candidate = better(candidate, {key, id});
    }
    return candidate;
}

// Of a block of 256 lanes, once a block; every lane gets it.
__device__ inline uint2 best256(unsigned lane, uint2 candidate) {
    __shared__ uint2 warps[8];
    const uint2 best = best32(candidate);
    if (lane % 32 == 0) {
        warps[lane / 32] = best;
    }
    __syncthreads();
    return best32(warps[lane % 8]);
}
