// Randomness: the twin of shaders/shared/philox.wgsl and of src/numerics/philox.rs.
#pragma once

#include "shared/exact.cuh"
#include "shared/state.cuh"

// The stream that tokens are drawn from.
constexpr unsigned DRAW_STREAM = 0;

struct Words {
    unsigned at[4];
};

// Ten rounds of Philox4x32; the key is (low, high).
__device__ inline Words philox4x32(Words counter, unsigned low, unsigned high) {
    for (unsigned i = 0; i < 10; i++) {
        const unsigned x = counter.at[0];
        const unsigned z = counter.at[2];
        counter = {
            __umulhi(z, 0xcd9e8d57) ^ counter.at[1] ^ low,
            z * 0xcd9e8d57,
            __umulhi(x, 0xd2511f53) ^ counter.at[3] ^ high,
            x * 0xd2511f53,
        };
        low += 0x9e3779b9;
        high += 0xbb67ae85;
    }
    return counter;
}

// The words of ids first..first+4, `first` a multiple of 4. They belong to the position of the token being drawn.
__device__ inline Words words_of(const State& state, unsigned first) {
    return philox4x32({first / 4, state.position + state.fed, DRAW_STREAM, 0}, state.seed_low, state.seed_high);
}

// A word as a number strictly inside (0, 1): the middle of one of 2^23 equal cells, exact.
__device__ inline float uniform_of(unsigned word) {
    return ((float)(word >> 9) + 0.5f) * 1.1920929e-7f;
}

// Gumbel noise of a random word.
__device__ inline float gumbel_of(unsigned word) {
    return -exact_ln(-exact_ln(uniform_of(word)));
}
