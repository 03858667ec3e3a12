// The best candidate of each 1024 logits: by logit / T + Gumbel noise, which is 0 where greedy. Grid: [ceil(n_vocab / 1024), rows, 1].
struct Params {
    zero: u32,
    n_vocab: u32,
}

const LANES: u32 = 256u;
const LOGITS_A_GROUP: u32 = 1024u;
const DRAW_STREAM: u32 = 0u;

@group(0) @binding(0) var<uniform> params: Params;
// [slots, n_vocab]
@group(0) @binding(2) var<storage, read> logits: array<f32>;
// [rows, ceil(n_vocab / 1024)]: order key, token id
@group(0) @binding(3) var<storage, read_write> partials: array<vec2<u32>>;
// [slots, ceil(n_vocab / 32)]: a bit an id, 1 where a masked row may draw it
@group(0) @binding(4) var<storage, read> masks: array<u32>;

// Whether the row may not draw an id.
fn is_banned(how: u32, slot: u32, id: u32) -> bool {
    return (how & MASKED) != 0u && ((masks[slot * ((params.n_vocab + 31u) / 32u) + id / 32u] >> (id % 32u)) & 1u) == 0u;
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = group.y;
    let how = batch.rows[row].z;
    if row_done(row) || (how & ADJUSTED) != 0u {
        return;
    }
    let slot = row_slot(row);
    let state = batch.states[slot];
    let first = (group.x * LANES + lane) * 4u;
    // The noise belongs to the position of the token being drawn.
    let position = state.position + state.fed;
    var noise = vec4<f32>(0.0);
    if state.greedy == 0u {
        let words = philox4x32(vec4<u32>(first / 4u, position, DRAW_STREAM, 0u), vec2<u32>(state.seed_low, state.seed_high));
        noise = vec4<f32>(gumbel_of(words.x), gumbel_of(words.y), gumbel_of(words.z), gumbel_of(words.w));
    }
    var best = vec2<u32>(0u);
    for (var j = 0u; j < 4u && first + j < params.n_vocab; j += 1u) {
        let logit = bitcast<u32>(logits[slot * params.n_vocab + first + j]);
        let value = flush_small(guard(number_of(logit) * state.inverse_temperature)) + noise[j];
        let key = order_key(value);
        if key > best.x && !is_out(logit) && !is_banned(how, slot, first + j) {
            best = vec2<u32>(key, first + j);
        }
    }
    let winner = best256(lane, best);
    if lane == 0u {
        partials[row * ((params.n_vocab + LOGITS_A_GROUP - 1u) / LOGITS_A_GROUP) + group.x] = winner;
    }
}
