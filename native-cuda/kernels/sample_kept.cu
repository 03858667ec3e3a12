// The best candidate of each 1024 ids by value + Gumbel noise, among the ids that stay. Grid: [ceil(n_vocab / 1024), rows, 1].
#include "shared/best.cuh"
#include "shared/kept.cuh"
#include "shared/philox.cuh"
#include "shared/running.cuh"

struct Params {
    unsigned zero;
    unsigned n_vocab;
};

constexpr unsigned LANES = 256;

// keys [rows, ceil(n_vocab / 4)]: order keys, 0 for ids that cannot be drawn and past the end
// borders: by row
// partials [rows, ceil(n_vocab / 1024)]: order key, token id
extern "C" __global__ __launch_bounds__(LANES) void kernel_main(
    const Params params,
    const Batch* __restrict__ batch,
    const uint4* __restrict__ keys,
    const Kept* __restrict__ borders,
    uint2* __restrict__ partials) {
    const unsigned lane = threadIdx.x;
    const unsigned row = blockIdx.y;
    if (row_done(batch, row) || (batch->rows[row].how & FILTERED) == 0) {
        return;
    }
    const State& state = batch->states[row_slot(batch, row)];
    const unsigned first = (blockIdx.x * LANES + lane) * 4;
    // Keys of the ids that stay, else 0: usually none of the four.
    unsigned staying[4] = {};
    if (first < params.n_vocab) {
        const uint4 four = keys[row * ((params.n_vocab + 3) / 4) + first / 4];
        const unsigned all[4] = {four.x, four.y, four.z, four.w};
        for (unsigned j = 0; j < 4; j++) {
            if (all[j] != 0 && stays(borders[row], all[j], first + j)) {
                staying[j] = all[j];
            }
        }
    }
    uint2 best = {0, 0};
    if ((staying[0] | staying[1] | staying[2] | staying[3]) != 0) {
        const Words words = words_of(state, first);
        for (unsigned j = 0; j < 4; j++) {
            if (staying[j] != 0) {
                const unsigned drawn = order_key(value_of(staying[j]) + gumbel_of(words.at[j]));
                if (drawn > best.x) {
                    best = {drawn, first + j};
                }
            }
        }
    }
    const uint2 winner = best256(lane, best);
    if (lane == 0) {
        partials[row * gridDim.x + blockIdx.x] = winner;
    }
}
