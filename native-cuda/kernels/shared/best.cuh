// The largest of candidates (order key, token id); ties go to the lowest id.
#pragma once

__device__ inline uint2 better(uint2 a, uint2 b) {
    const bool b_wins = b.x > a.x || (b.x == a.x && b.y < a.y);
    return b_wins ? b : a;
}

__device__ inline uint2 best32(uint2 candidate) {
    const unsigned key = __reduce_max_sync(0xffffffff, candidate.x);
    const unsigned id = __reduce_min_sync(0xffffffff, candidate.x == key ? candidate.y : 0xffffffff);
    return {key, id};
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
