// The best candidate of each 1024 logits: by logit / T + Gumbel noise, which is 0 where greedy. Grid: [ceil(n_vocab / 1024), rows, 1].
#include "shared/best.cuh"
#include "shared/exact.cuh"
#include "shared/masks.cuh"
#include "shared/order.cuh"
#include "shared/philox.cuh"
#include "shared/running.cuh"

struct Params {
    unsigned zero;
    unsigned n_vocab;
};

constexpr unsigned LANES = 256;

// logits [slots, n_vocab]
// partials [rows, ceil(n_vocab / 1024)]: order key, token id
// masks: see shared/masks.cuh
extern "C" __global__ __launch_bounds__(LANES) void kernel_main(
    const Params params,
    const Batch* __restrict__ batch,
    const unsigned* __restrict__ logits,
    uint2* __restrict__ partials,
    const unsigned* __restrict__ masks) {
    const unsigned lane = threadIdx.x;
    const unsigned row = blockIdx.y;
    const unsigned how = batch->rows[row].how;
    if (row_done(batch, row) || (how & ADJUSTED) != 0) {
        return;
    }
    const unsigned slot = row_slot(batch, row);
    const State& state = batch->states[slot];
    const unsigned first = (blockIdx.x * LANES + lane) * 4;
    float noise[4] = {};
    if (state.greedy == 0) {
        const Words words = words_of(state, first);
        for (unsigned j = 0; j < 4; j++) {
            noise[j] = gumbel_of(words.at[j]);
        }
    }
    const unsigned may = allowed(masks, params.n_vocab, how, slot, first);
    uint2 best = {0, 0};
    for (unsigned j = 0; j < 4 && first + j < params.n_vocab; j++) {
        const unsigned logit = logits[slot * params.n_vocab + first + j];
        const float value = flush_small(product(number_of(logit), state.inverse_temperature)) + noise[j];
        const unsigned key = order_key(value);
        if (key > best.x && !is_out(logit) && (may >> j & 1) != 0) {
            best = {key, first + j};
        }
    }
    const uint2 winner = best256(lane, best);
    if (lane == 0) {
        partials[row * gridDim.x + blockIdx.x] = winner;
    }
}
