// Logits with biases and penalties, over the temperature, as order keys, and the best of each 1024 of them. Grid: [ceil(n_vocab / 1024), rows, 1].
struct Params {
    zero: u32,
    n_vocab: u32,
    // Entries of a slot in `history`.
    history_a_slot: u32,
}

const LANES: u32 = 256u;
const LOGITS_A_GROUP: u32 = 1024u;
const DRAW_STREAM: u32 = 0u;
const MINUS_INFINITY: u32 = 0xff800000u;

@group(0) @binding(0) var<uniform> params: Params;
// [slots, n_vocab]: bits of the logits
@group(0) @binding(2) var<storage, read> logits: array<u32>;
// [rows, ceil(n_vocab / 1024)]: order key, token id
@group(0) @binding(3) var<storage, read_write> partials: array<vec2<u32>>;
// By slot.
@group(0) @binding(4) var<storage, read> all_rules: array<Rules>;
// [slots, n_ctx + 1]: tokens by position
@group(0) @binding(5) var<storage, read> history: array<u32>;
// [rows, n_vocab, padded to a multiple of 4]: order keys, 0 for ids that cannot be drawn
@group(0) @binding(6) var<storage, read_write> keys: array<u32>;
// [slots, ceil(n_vocab / 32)]: a bit an id, 1 where a masked row may draw it
@group(0) @binding(7) var<storage, read> masks: array<u32>;

// Whether the row may not draw an id.
fn is_banned(how: u32, slot: u32, id: u32) -> bool {
    return (how & MASKED) != 0u && ((masks[slot * ((params.n_vocab + 31u) / 32u) + id / 32u] >> (id % 32u)) & 1u) == 0u;
}

// Bits of each id's bias.
var<workgroup> biases: array<u32, 1024>;
// How often each id stands in the window.
var<workgroup> counts: array<atomic<u32>, 1024>;

fn adjusted(slot: u32, logit: u32, bias: u32, count: u32) -> u32 {
    if is_out(logit) || bias == MINUS_INFINITY {
        return 0u;
    }
    var value = number_of(logit) + bitcast<f32>(bias);
    if count > 0u {
        value = guard(value * select(all_rules[slot].repeat, all_rules[slot].inverse_repeat, value > 0.0));
        value = (value - guard(f32(count) * all_rules[slot].frequency)) - all_rules[slot].presence;
    }
    return order_key(flush_small(guard(value * batch.states[slot].inverse_temperature)));
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = group.y;
    let how = batch.rows[row].z;
    if row_done(row) || (how & ADJUSTED) == 0u {
        return;
    }
    let slot = row_slot(row);
    let state = batch.states[slot];
    let group_first = group.x * LOGITS_A_GROUP;
    for (var j = lane; j < LOGITS_A_GROUP; j += LANES) {
        biases[j] = 0u;
        atomicStore(&counts[j], 0u);
    }
    workgroupBarrier();
    for (var i = lane; i < all_rules[slot].n_biases; i += LANES) {
        // An id before the group's wraps around.
        let at = all_rules[slot].biases[i].x - group_first;
        if at < LOGITS_A_GROUP {
            biases[at] = all_rules[slot].biases[i].y;
        }
    }
    // Window and noise belong to the position of the token being drawn.
    let position = state.position + state.fed;
    for (var i = lane; i < min(all_rules[slot].window, position); i += LANES) {
        let at = history[slot * params.history_a_slot + position - 1u - i] - group_first;
        if at < LOGITS_A_GROUP {
            atomicAdd(&counts[at], 1u);
        }
    }
    workgroupBarrier();

    let first = group_first + lane * 4u;
    var noise = vec4<f32>(0.0);
    if all_rules[slot].noise == 1u {
        let words = philox4x32(vec4<u32>(first / 4u, position, DRAW_STREAM, 0u), vec2<u32>(state.seed_low, state.seed_high));
        noise = vec4<f32>(gumbel_of(words.x), gumbel_of(words.y), gumbel_of(words.z), gumbel_of(words.w));
    }
    var best = vec2<u32>(0u);
    for (var j = 0u; j < 4u && first + j < params.n_vocab; j += 1u) {
        let at = lane * 4u + j;
        var key = adjusted(slot, logits[slot * params.n_vocab + first + j], biases[at], atomicLoad(&counts[at]));
        if is_banned(how, slot, first + j) {
            key = 0u;
        }
        keys[row * ((params.n_vocab + 3u) / 4u * 4u) + first + j] = key;
        if all_rules[slot].noise == 1u && key != 0u {
            key = order_key(value_of(key) + noise[j]);
        }
        if key > best.x {
            best = vec2<u32>(key, first + j);
        }
    }
    let winner = best256(lane, best);
    if lane == 0u {
        partials[row * ((params.n_vocab + LOGITS_A_GROUP - 1u) / LOGITS_A_GROUP) + group.x] = winner;
    }
}
