// Picks the token among the partial results, stores it for the next step and for the host, and advances the state. Grid: [1, 1, 1].
struct Params {
    zero: u32,
    n_partials: u32,
}

const LANES: u32 = 256u;

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> state: State;
// [n_partials]: order key, token id
@group(0) @binding(2) var<storage, read> partials: array<vec2<u32>>;
// [1]: the token the next step feeds
@group(0) @binding(3) var<storage, read_write> tokens: array<u32>;
// Drawn tokens by step.
@group(0) @binding(4) var<storage, read_write> ring: array<u32>;
// Tokens by position, [n_ctx + 1].
@group(0) @binding(5) var<storage, read_write> history: array<u32>;

@compute @workgroup_size(LANES)
fn main(@builtin(local_invocation_index) lane: u32) {
    var best = vec2<u32>(0u);
    for (var i = lane; i < params.n_partials; i += LANES) {
        best = better(best, partials[i]);
    }
    let winner = best256(lane, best);
    if lane == 0u {
        tokens[0] = winner.y;
        ring[state.step] = winner.y;
        state.step += 1u;
        state.position += state.fed;
        history[state.position] = winner.y;
        state.fed = 1u;
    }
}
