// Picks the token among the partial results, stores it for the next step and for the host, advances the state, and ends the row where a
// stop id, a limit or the guard says so. Grid: [1, rows, 1].
struct Params {
    zero: u32,
    n_partials: u32,
    // Entries of a slot in `history` and in `stops`.
    history_a_slot: u32,
    stops_a_slot: u32,
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
@group(0) @binding(1) var<storage, read_write> batch: Batch;
// [rows, n_partials]: order key, token id
@group(0) @binding(2) var<storage, read> partials: array<vec2<u32>>;
// By slot: the token the next step feeds
@group(0) @binding(3) var<storage, read_write> tokens: array<u32>;
// Drawn tokens with their statuses.
@group(0) @binding(4) var<storage, read_write> ring: array<u32>;
// [slots, n_ctx + 1]: tokens by position
@group(0) @binding(5) var<storage, read_write> history: array<u32>;
// [slots, stops_a_slot]
@group(0) @binding(6) var<storage, read> stops: array<u32>;
// By slot.
@group(0) @binding(7) var<storage, read_write> tripped: array<u32>;

// Whether the sequence goes on after the token `id`, and why not.
fn status_of(slot: u32, key: u32, id: u32) -> u32 {
    if tripped[slot] != UNTRIPPED {
        return GUARD;
    }
    if key == 0u {
        return NO_CANDIDATE;
    }
    for (var i = 0u; i < batch.states[slot].n_stops; i += 1u) {
        if stops[slot * params.stops_a_slot + i] == id {
            return STOP_ID;
        }
    }
    if batch.states[slot].left <= 1u {
        return NO_TOKENS_LEFT;
    }
    let next = batch.states[slot].position + batch.states[slot].fed;
    return select(0u, CONTEXT_FULL, next >= batch.states[slot].n_ctx);
}

fn finish(row: u32, key: u32, id: u32) {
    let slot = batch.rows[row].x;
    let step = batch.states[slot].step;
    let word = batch.rows[row].y + step * batch.n_rows;
    batch.states[slot].step = step + 1u;
    if batch.states[slot].done != 0u {
        ring[word] = NOT_RUN << ID_BITS;
        return;
    }
    let status = status_of(slot, key, id);
    // An id that is too large stays one.
    ring[word] = (status << ID_BITS) | min(id, MAX_ID);
    batch.states[slot].done = status;
    if status == GUARD || status == NO_CANDIDATE {
        return;
    }
    tokens[slot] = id;
    batch.states[slot].left -= 1u;
    batch.states[slot].position += batch.states[slot].fed;
    history[slot * params.history_a_slot + batch.states[slot].position] = id;
    batch.states[slot].fed = 1u;
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    var best = vec2<u32>(0u);
    for (var i = lane; i < params.n_partials; i += LANES) {
        best = better(best, partials[group.y * params.n_partials + i]);
    }
    let winner = best256(lane, best);
    if lane == 0u {
        finish(group.y, winner.x, winner.y);
    }
}
