// The best candidate of each 1024 ids by value + Gumbel noise, among the ids that stay. Grid: [ceil(n_vocab / 1024), rows, 1].
struct Params {
    zero: u32,
    n_vocab: u32,
}

const LANES: u32 = 256u;
const LOGITS_A_GROUP: u32 = 1024u;
const DRAW_STREAM: u32 = 0u;

@group(0) @binding(0) var<uniform> params: Params;
// [rows, n_vocab, padded to a multiple of 4]: order keys, 0 for ids that cannot be drawn
@group(0) @binding(2) var<storage, read> keys: array<u32>;
// By row.
@group(0) @binding(3) var<storage, read> borders: array<Kept>;
// [rows, ceil(n_vocab / 1024)]: order key, token id
@group(0) @binding(4) var<storage, read_write> partials: array<vec2<u32>>;

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = group.y;
    let how = batch.rows[row].z;
    if row_done(row) || (how & FILTERED) == 0u {
        return;
    }
    let slot = row_slot(row);
    let state = batch.states[slot];
    let first = (group.x * LANES + lane) * 4u;
    let position = state.position + state.fed;
    // Keys of the ids that stay: usually none of the four.
    var staying = vec4<u32>(0u);
    for (var j = 0u; j < 4u && first + j < params.n_vocab; j += 1u) {
        let key = keys[row * ((params.n_vocab + 3u) / 4u * 4u) + first + j];
        if key != 0u && stays(borders[row], key, first + j) {
            staying[j] = key;
        }
    }
    var best = vec2<u32>(0u);
    if any(staying != vec4<u32>(0u)) {
        let words = philox4x32(vec4<u32>(first / 4u, position, DRAW_STREAM, 0u), vec2<u32>(state.seed_low, state.seed_high));
        for (var j = 0u; j < 4u; j += 1u) {
            if staying[j] != 0u {
                let drawn = order_key(value_of(staying[j]) + gumbel_of(words[j]));
                if drawn > best.x {
                    best = vec2<u32>(drawn, first + j);
                }
            }
        }
    }
    let winner = best256(lane, best);
    if lane == 0u {
        partials[row * ((params.n_vocab + LOGITS_A_GROUP - 1u) / LOGITS_A_GROUP) + group.x] = winner;
    }
}
