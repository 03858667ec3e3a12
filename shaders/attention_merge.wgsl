// Merges a row's partial results: ascending within groups of 32 chunks, then the groups ascending; out = values / sum, times the sigmoid of
// the gate where there is one.
// Grid: [ceil(width / 256), rows, 1].
struct Params {
    zero: u32,
    // Values an output row (n_heads head_dim), segments of its blocks and blocks a segment.
    width: u32,
    segments: u32,
    segment_len: u32,
    n_heads: u32,
    head_dim: u32,
    window: u32,
    chunks_per_unit: u32,
    max_units: u32,
    // 1 where each query head is followed by its gate.
    gated: u32,
    // Values a row of qkv.
    qkv_width: u32,
}

const LANES: u32 = 64u;

@group(0) @binding(0) var<uniform> params: Params;
// [rows, max_units, n_heads, 2 + head_dim]
@group(0) @binding(2) var<storage, read> partials: array<f32>;
// [rows, qkv_width]: query and gate of each head, then keys and values
@group(0) @binding(3) var<storage, read> qkv: array<f32>;

struct Partial {
    maximum: f32,
    sum: f32,
    values: vec4<f32>,
}

fn load(at: u32, dim: u32) -> Partial {
    let v = at + 2u + dim;
    return Partial(partials[at], partials[at + 1u], vec4<f32>(partials[v], partials[v + 1u], partials[v + 2u], partials[v + 3u]));
}

fn guard4(v: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(guard(v.x), guard(v.y), guard(v.z), guard(v.w));
}

// `a` is the earlier one.
fn merge(a: Partial, b: Partial) -> Partial {
    let maximum = max(a.maximum, b.maximum);
    let fa = exact_exp2(a.maximum - maximum);
    let fb = exact_exp2(b.maximum - maximum);
    return Partial(maximum, guard(a.sum * fa) + guard(b.sum * fb), guard4(a.values * fa) + guard4(b.values * fb));
}

// A group joins the total, or is its beginning.
fn joined(total: Partial, group: Partial, has_total: bool) -> Partial {
    if has_total {
        return merge(total, group);
    }
    return group;
}

fn merged(row: u32, column: u32) -> vec4<f32> {
    if column >= params.width {
        return vec4<f32>(0.0);
    }
    let head = column / params.head_dim;
    let dim = column % params.head_dim;
    let position = row_position(row);
    let first = first_unit(position);
    let end = end_unit(position);
    let units_a_group = CHUNKS_PER_GROUP / params.chunks_per_unit;
    var total: Partial;
    var group: Partial;
    var has_total = false;
    // The next unit is on its way while this one is merged.
    var ahead = load(partial_at(row, 0u, head), dim);
    for (var unit = first; unit < end; unit += 1u) {
        let current = ahead;
        if unit + 1u < end {
            ahead = load(partial_at(row, unit + 1u - first, head), dim);
        }
        if unit == first {
            group = current;
        } else if unit % units_a_group != 0u {
            group = merge(group, current);
        } else {
            total = joined(total, group, has_total);
            has_total = true;
            group = current;
        }
    }
    total = joined(total, group, has_total);
    return total.values * exact_recip(total.sum);
}

// Values from a column on, times the sigmoids of their gates where there are any; zero below 2^-100 then.
fn gated(row: u32, column: u32, values: vec4<f32>) -> vec4<f32> {
    if params.gated == 0u || column >= params.width {
        return values;
    }
    let head = column / params.head_dim;
    let at = row * params.qkv_width + (2u * head + 1u) * params.head_dim + column % params.head_dim;
    var out = vec4<f32>(0.0);
    for (var j = 0u; j < 4u; j += 1u) {
        out[j] = flush_small(values[j] * exact_sigmoid(qkv[at + j]));
    }
    return out;
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    if row_done(group.y) {
        return;
    }
    let column = group.x * 4u * LANES + 4u * lane;
    emit(group.y, lane, column, gated(group.y, column, merged(group.y, column)));
}
