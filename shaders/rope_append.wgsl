// Norms (where asked) and rotates one head of q or k, or takes one head of v. q goes back into qkv, scaled and rounded to 11 bits; k and
// v go to the cache. Grid: [n_heads + 2 n_kv_heads, rows, 1].
struct Params {
    zero: u32,
    n_heads: u32,
    n_kv_heads: u32,
    head_dim: u32,
    // Values from one query head to the next: head_dim, or twice that where each is followed by its gate.
    query_stride: u32,
    // Rotated pairs a head.
    n_pairs: u32,
    // 0: pairs 2i, 2i+1. 1: pairs i, i + n_pairs.
    neox: u32,
    // 1 where q or k heads are normed.
    norm_q: u32,
    norm_k: u32,
    eps: f32,
    // 1 / head_dim, rounded.
    inverse_dim: f32,
    q_scale: f32,
    // Entries of a slot in the block table.
    pages_a_slot: u32,
}

const LANES: u32 = 256u;
const PAGE: u32 = 64u;
const MAX_HEAD_DIM: u32 = 256u;

@group(0) @binding(0) var<uniform> params: Params;
// [slots, pages_a_slot]: physical page of each logical page.
@group(0) @binding(2) var<storage, read> block_table: array<u32>;
// [rows, n_heads query_stride + 2 n_kv_heads head_dim]
@group(0) @binding(3) var<storage, read_write> qkv: array<f32>;
// [head_dim] each
@group(0) @binding(4) var<storage, read> q_norm: array<f32>;
@group(0) @binding(5) var<storage, read> k_norm: array<f32>;
// [positions, n_pairs]: cos, sin
@group(0) @binding(6) var<storage, read> angles: array<vec2<f32>>;

var<workgroup> head: array<f32, MAX_HEAD_DIM>;

fn norm_weight(is_query: bool, i: u32) -> f32 {
    if is_query {
        return q_norm[i];
    }
    return k_norm[i];
}

fn rotate(position: u32, pair: u32) {
    let i = select(2u * pair, pair, params.neox == 1u);
    let j = select(2u * pair + 1u, pair + params.n_pairs, params.neox == 1u);
    let x0 = head[i];
    let x1 = head[j];
    let angle = angles[position * params.n_pairs + pair];
    head[i] = guard(x0 * angle.x) - guard(x1 * angle.y);
    head[j] = guard(x0 * angle.y) + guard(x1 * angle.x);
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    if row_done(group.y) {
        return;
    }
    let first_key = params.n_heads * params.query_stride;
    let width = first_key + 2u * params.n_kv_heads * params.head_dim;
    let position = row_position(group.y);
    let is_query = group.x < params.n_heads;
    var start = group.y * width + group.x * params.query_stride;
    if !is_query {
        start = group.y * width + first_key + (group.x - params.n_heads) * params.head_dim;
    }
    let is_value = group.x >= params.n_heads + params.n_kv_heads;
    let inside = lane < params.head_dim;
    let normed = (is_query && params.norm_q == 1u) || (!is_query && !is_value && params.norm_k == 1u);

    var x = 0.0;
    if inside {
        x = qkv[start + lane];
    }
    if normed {
        let total = tree256(lane, guard(x * x));
        let r = exact_rsqrt(guard(total * params.inverse_dim) + params.eps);
        if inside {
            x = (x * r) * norm_weight(is_query, lane);
        }
    }
    if inside {
        head[lane] = x;
    }
    workgroupBarrier();
    if !is_value && lane < params.n_pairs {
        rotate(position, lane);
    }
    workgroupBarrier();

    if is_query {
        if inside {
            qkv[start + lane] = round_sig(head[lane] * params.q_scale, 11u);
        }
        return;
    }
    let page = block_table[row_slot(group.y) * params.pages_a_slot + position / PAGE];
    let region = page * params.n_kv_heads + (group.x - params.n_heads) % params.n_kv_heads;
    if is_value {
        store_value(region, position, lane);
    } else {
        store_key(region, position, lane);
    }
}
