// Logits with biases and penalties, over the temperature, as order keys, and the best of each 1024 of them. Grid: [ceil(n_vocab / 1024), rows, 1].
#include "shared/best.cuh"
#include "shared/exact.cuh"
#include "shared/masks.cuh"
#include "shared/order.cuh"
#include "shared/philox.cuh"
#include "shared/rules.cuh"
#include "shared/running.cuh"

struct Params {
    unsigned zero;
    unsigned n_vocab;
    // Entries of a slot in `history`.
    unsigned history_a_slot;
};

constexpr unsigned LANES = 256;
constexpr unsigned LOGITS_A_GROUP = 1024;
constexpr unsigned MINUS_INFINITY = 0xff800000;

// The order key of a logit with the bits of its bias and how often its id stands in the window.
__device__ unsigned adjusted(const Rules& rules, float inverse_temperature, unsigned logit, unsigned bias, unsigned count) {
    if (is_out(logit) || bias == MINUS_INFINITY) {
        return 0;
    }
    float value = number_of(logit) + __uint_as_float(bias);
    if (count > 0) {
        value = product(value, value > 0.0f ? rules.inverse_repeat : rules.repeat);
        value = (value - product((float)count, rules.frequency)) - rules.presence;
    }
    return order_key(flush_small(product(value, inverse_temperature)));
}

// logits [slots, n_vocab]: bits
// partials [rows, ceil(n_vocab / 1024)]: order key, token id
// all_rules: by slot
// history [slots, n_ctx + 1]: tokens by position
// keys [rows, ceil(n_vocab / 4)]: order keys, 0 for ids that cannot be drawn and past the end
// masks: see shared/masks.cuh
extern "C" __global__ __launch_bounds__(LANES) void kernel_main(
    const Params params,
    const Batch* __restrict__ batch,
    const unsigned* __restrict__ logits,
    uint2* __restrict__ partials,
    const Rules* __restrict__ all_rules,
    const unsigned* __restrict__ history,
    uint4* __restrict__ keys,
    const unsigned* __restrict__ masks) {
    // Bits of each id's bias.
    __shared__ unsigned biases[LOGITS_A_GROUP];
    // How often each id stands in the window.
    __shared__ unsigned counts[LOGITS_A_GROUP];

    const unsigned lane = threadIdx.x;
    const unsigned row = blockIdx.y;
    const unsigned how = batch->rows[row].how;
    if (row_done(batch, row) || (how & ADJUSTED) == 0) {
        return;
    }
    const unsigned slot = row_slot(batch, row);
    const State& state = batch->states[slot];
    const Rules& rules = all_rules[slot];
    const unsigned group_first = blockIdx.x * LOGITS_A_GROUP;
    for (unsigned j = lane; j < LOGITS_A_GROUP; j += LANES) {
        biases[j] = 0;
        counts[j] = 0;
    }
    __syncthreads();
    for (unsigned i = lane; i < rules.n_biases; i += LANES) {
        // An id before the group's wraps around.
        const uint2 bias = rules.biases[i];
        if (bias.x - group_first < LOGITS_A_GROUP) {
            biases[bias.x - group_first] = bias.y;
        }
    }
    // The window belongs to the position of the token being drawn.
    const unsigned position = state.position + state.fed;
    for (unsigned i = lane; i < min(rules.window, position); i += LANES) {
        const unsigned at = history[slot * params.history_a_slot + position - 1 - i] - group_first;
        if (at < LOGITS_A_GROUP) {
            atomicAdd(&counts[at], 1u);
        }
    }
    __syncthreads();

    const unsigned first = group_first + lane * 4;
    float noise[4] = {};
    if (rules.noise == 1) {
        const Words words = words_of(state, first);
        for (unsigned j = 0; j < 4; j++) {
            noise[j] = gumbel_of(words.at[j]);
        }
    }
    const unsigned may = allowed(masks, params.n_vocab, how, slot, first);
    unsigned four[4] = {};
    uint2 best = {0, 0};
    for (unsigned j = 0; j < 4 && first + j < params.n_vocab; j++) {
        const unsigned at = lane * 4 + j;
        if ((may >> j & 1) != 0) {
            const unsigned logit = logits[slot * params.n_vocab + first + j];
            four[j] = adjusted(rules, state.inverse_temperature, logit, biases[at], counts[at]);
        }
        unsigned key = four[j];
        if (rules.noise == 1 && key != 0) {
            key = order_key(value_of(key) + noise[j]);
        }
        if (key > best.x) {
            best = {key, first + j};
        }
    }
    if (first < params.n_vocab) {
        keys[row * ((params.n_vocab + 3) / 4) + first / 4] = {four[0], four[1], four[2], four[3]};
    }
    const uint2 winner = best256(lane, best);
    if (lane == 0) {
        partials[row * gridDim.x + blockIdx.x] = winner;
    }
}
