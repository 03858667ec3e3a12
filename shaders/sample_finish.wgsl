// Picks the token among the partial results, stores it for the next step and for the host, advances the state, and ends the row where a
// stop id, a limit or the guard says so. Grid: [1, 1, 1].
struct Params {
    zero: u32,
    n_partials: u32,
}

const LANES: u32 = 256u;
const UNTRIPPED: u32 = 0xffffffffu;
// What stands above the token id in a word of the ring: why the row has stopped with this step.
const ID_BITS: u32 = 24u;
const MAX_ID: u32 = 0xffffffu;
const STOP_ID: u32 = 1u;
const NO_TOKENS_LEFT: u32 = 2u;
const CONTEXT_FULL: u32 = 3u;
const GUARD: u32 = 4u;
const NO_CANDIDATE: u32 = 5u;
const NOT_RUN: u32 = 255u;

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> state: State;
// [n_partials]: order key, token id
@group(0) @binding(2) var<storage, read> partials: array<vec2<u32>>;
// [1]: the token the next step feeds
@group(0) @binding(3) var<storage, read_write> tokens: array<u32>;
// Drawn tokens by step, with their statuses.
@group(0) @binding(4) var<storage, read_write> ring: array<u32>;
// Tokens by position, [n_ctx + 1].
@group(0) @binding(5) var<storage, read_write> history: array<u32>;
// [n_stops]
@group(0) @binding(6) var<storage, read> stops: array<u32>;
// [1]
@group(0) @binding(7) var<storage, read_write> tripped: array<u32>;

// Whether the row goes on after the token `id`, and why not.
fn status_of(key: u32, id: u32) -> u32 {
    if tripped[0] != UNTRIPPED {
        return GUARD;
    }
    if key == 0u {
        return NO_CANDIDATE;
    }
    for (var i = 0u; i < state.n_stops; i += 1u) {
        if stops[i] == id {
            return STOP_ID;
        }
    }
    if state.left <= 1u {
        return NO_TOKENS_LEFT;
    }
    return select(0u, CONTEXT_FULL, state.position + state.fed >= state.n_ctx);
}

fn finish(key: u32, id: u32) {
    let step = state.step;
    state.step = step + 1u;
    if state.done != 0u {
        ring[step] = NOT_RUN << ID_BITS;
        return;
    }
    let status = status_of(key, id);
    // An id that is too large stays one.
    ring[step] = (status << ID_BITS) | min(id, MAX_ID);
    state.done = status;
    if status == GUARD || status == NO_CANDIDATE {
        return;
    }
    tokens[0] = id;
    state.left -= 1u;
    state.position += state.fed;
    history[state.position] = id;
    state.fed = 1u;
}

@compute @workgroup_size(LANES)
fn main(@builtin(local_invocation_index) lane: u32) {
    var best = vec2<u32>(0u);
    for (var i = lane; i < params.n_partials; i += LANES) {
        best = better(best, partials[i]);
    }
    let winner = best256(lane, best);
    if lane == 0u {
        finish(winner.x, winner.y);
    }
}
