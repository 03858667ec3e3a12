// The tree of adjacent pairs over the 32 lanes of a warp, for N values at once (a power of two, at most 32).
#pragma once

// Both lanes of a pair add the same two numbers; while there are several values, each of them keeps half. Lane l gets the sum of value l % N.
template <unsigned N> __device__ inline float tree32(const float (&values)[N], unsigned lane, unsigned step = 1) {
    const bool odd = (lane & step) != 0;
    if constexpr (N == 1) {
        float sum = values[0];
#pragma unroll
        for (; step < 32; step *= 2) {
            sum = sum + __shfl_xor_sync(0xffffffffu, sum, step);
        }
        return sum;
    } else {
        float half[N / 2];
#pragma unroll
        for (unsigned i = 0; i < N / 2; i++) {
            const float passed = __shfl_xor_sync(0xffffffffu, odd ? values[2 * i] : values[2 * i + 1], step);
            half[i] = (odd ? values[2 * i + 1] : values[2 * i]) + passed;
        }
        return tree32(half, lane, 2 * step);
    }
}
