// Picks the token among the partial results, stores it for the next step and for the host, advances the state, and ends the row where a
// stop id, a limit or the guard says so. Grid: [1, rows, 1].
#include "shared/best.cuh"
#include "shared/state.cuh"

struct Params {
    unsigned zero;
    unsigned n_partials;
    // Entries of a slot in `history` and in `stops`.
    unsigned history_a_slot;
    unsigned stops_a_slot;
};

constexpr unsigned LANES = 256;
constexpr unsigned UNTRIPPED = 0xffffffff;
// What stands above the token id in a word of the ring: why the row has stopped with this step.
constexpr unsigned ID_BITS = 24;
constexpr unsigned MAX_ID = 0xffffff;
constexpr unsigned STOP_ID = 1;
constexpr unsigned NO_TOKENS_LEFT = 2;
constexpr unsigned CONTEXT_FULL = 3;
constexpr unsigned GUARD = 4;
constexpr unsigned NO_CANDIDATE = 5;
constexpr unsigned NOT_RUN = 255;

// Whether the sequence goes on after the token `id`, and why not.
__device__ unsigned status_of(const State& state, const unsigned* stops, unsigned tripped, unsigned key, unsigned id) {
    if (tripped != UNTRIPPED) {
        return GUARD;
    }
    if (key == 0) {
        return NO_CANDIDATE;
    }
    for (unsigned i = 0; i < state.n_stops; i++) {
        if (stops[i] == id) {
            return STOP_ID;
        }
    }
    if (state.left <= 1) {
        return NO_TOKENS_LEFT;
    }
    return state.position + state.fed >= state.n_ctx ? CONTEXT_FULL : 0;
}

// partials [rows, n_partials]: order key, token id
// tokens, by slot: the token the next step feeds
// ring: drawn tokens with their statuses
// history [slots, n_ctx + 1]: tokens by position
// stops [slots, stops_a_slot]
// tripped: by slot
extern "C" __global__ __launch_bounds__(LANES) void kernel_main(
    const Params params,
    Batch* __restrict__ batch,
    const uint2* __restrict__ partials,
    unsigned* __restrict__ tokens,
    unsigned* __restrict__ ring,
    unsigned* __restrict__ history,
    const unsigned* __restrict__ stops,
    const unsigned* __restrict__ tripped) {
    const unsigned lane = threadIdx.x;
    uint2 best = {0, 0};
    for (unsigned i = lane; i < params.n_partials; i += LANES) {
        best = better(best, partials[blockIdx.y * params.n_partials + i]);
    }
    const uint2 winner = best256(lane, best);
    if (lane != 0) {
        return;
    }
    const Row& row = batch->rows[blockIdx.y];
    State& state = batch->states[row.slot];
    unsigned& word = ring[row.first_word + state.step * batch->n_rows];
    state.step += 1;
    if (state.done != 0) {
        word = NOT_RUN << ID_BITS;
        return;
    }
    const unsigned status = status_of(state, stops + row.slot * params.stops_a_slot, tripped[row.slot], winner.x, winner.y);
    // An id that is too large stays one.
    word = status << ID_BITS | min(winner.y, MAX_ID);
    state.done = status;
    if (status == GUARD || status == NO_CANDIDATE) {
        return;
    }
    tokens[row.slot] = winner.y;
    state.left -= 1;
    state.position += state.fed;
    history[row.slot * params.history_a_slot + state.position] = winner.y;
    state.fed = 1;
}
