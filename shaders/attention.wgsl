// Softmax of a few query heads over one unit of chunks, as partial results (maximum, sum, weighted values).
// Grid: [units, n_kv_heads * head_groups, rows]; a workgroup has up to HEADS query heads of one key/value head.
struct Params {
    zero: u32,
    n_heads: u32,
    n_kv_heads: u32,
    head_dim: u32,
    // Groups of query heads a key/value head.
    head_groups: u32,
    // Keys seen backwards, 0 for all.
    window: u32,
    chunks_per_unit: u32,
    // Room for units a row in `partials`.
    max_units: u32,
}

const LANES: u32 = 256u;
const HEADS: u32 = 4u;
const MAX_HEAD_DIM: u32 = 256u;
// Below any score.
const LOWEST: f32 = -3.0e38;

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> block_table: array<u32>;
// [rows, (n_heads + 2 n_kv_heads) head_dim]; the query part is scaled and rounded to 11 bits
@group(0) @binding(3) var<storage, read> qkv: array<f32>;
// [pages, n_kv_heads, head_dim / 8, PAGE], eight f16 an entry
@group(0) @binding(4) var<storage, read> keys: array<vec4<u32>>;
// [pages, n_kv_heads, PAGE, head_dim / 2], two f16 an entry
@group(0) @binding(5) var<storage, read> values: array<u32>;
// [rows, max_units, n_heads, 2 + head_dim]
@group(0) @binding(6) var<storage, read_write> partials: array<f32>;

var<workgroup> query: array<f32, HEADS * MAX_HEAD_DIM>;
var<workgroup> weighted: array<f32, HEADS * MAX_HEAD_DIM>;
var<workgroup> weights: array<f32, HEADS * PAGE>;
var<workgroup> maxima: array<f32, HEADS * PAGE>;
var<workgroup> total_max: array<f32, HEADS>;
var<workgroup> total_sum: array<f32, HEADS>;

// Dot product of a query with the key at `at` (its first eight values; the next eight are PAGE entries on).
fn score(head: u32, at: u32) -> f32 {
    var low = vec4<f32>(0.0);
    var high = vec4<f32>(0.0);
    for (var g = 0u; g < params.head_dim / 8u; g += 1u) {
        let key = keys[at + g * PAGE];
        let q = head * params.head_dim + 8u * g;
        let q_low = vec4<f32>(query[q], query[q + 1u], query[q + 2u], query[q + 3u]);
        let q_high = vec4<f32>(query[q + 4u], query[q + 5u], query[q + 6u], query[q + 7u]);
        // exact: 11 + 11 significant bits
        low = low + q_low * vec4<f32>(unpack2x16float(key.x), unpack2x16float(key.y));
        // exact: 11 + 11 significant bits
        high = high + q_high * vec4<f32>(unpack2x16float(key.z), unpack2x16float(key.w));
    }
    return ((low.x + low.y) + (low.z + low.w)) + ((high.x + high.y) + (high.z + high.w));
}

// Largest score of each head's PAGE lanes; every lane gets its head's.
fn head_max(lane: u32, value: f32) -> f32 {
    maxima[lane] = value;
    workgroupBarrier();
    for (var step = PAGE / 2u; step > 0u; step /= 2u) {
        if lane % PAGE < step {
            maxima[lane] = max(maxima[lane], maxima[lane + step]);
        }
        workgroupBarrier();
    }
    return maxima[lane / PAGE * PAGE];
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    if state.done != 0u {
        return;
    }
    let row = group.z;
    let position = row_position(row);
    let unit = first_unit(position) + group.x;
    let kv_head = group.y / params.head_groups;
    let heads_a_kv = params.n_heads / params.n_kv_heads;
    let first_of_group = group.y % params.head_groups * HEADS;
    let n_heads_here = min(HEADS, heads_a_kv - first_of_group);
    let first_head = kv_head * heads_a_kv + first_of_group;
    let n_values = n_heads_here * params.head_dim;
    let row_start = row * (params.n_heads + 2u * params.n_kv_heads) * params.head_dim;
    for (var i = lane; i < n_values; i += LANES) {
        query[i] = qkv[row_start + first_head * params.head_dim + i];
    }
    workgroupBarrier();

    let first_key = first_visible(position);
    let first_chunk = max(first_key / PAGE, unit * params.chunks_per_unit);
    let end_chunk = min(position / PAGE, unit * params.chunks_per_unit + params.chunks_per_unit - 1u) + 1u;
    let head = lane / PAGE;
    let slot = lane % PAGE;
    let n_pairs = n_values / 2u;
    let pairs_a_head = params.head_dim / 2u;
    for (var chunk = first_chunk; chunk < end_chunk; chunk += 1u) {
        let page = block_table[chunk] * params.n_kv_heads + kv_head;
        let key = chunk * PAGE + slot;
        let visible = key >= first_key && key <= position && head < n_heads_here;
        var s = LOWEST;
        if visible {
            s = score(head, page * (params.head_dim / 8u) * PAGE + slot);
        }
        let chunk_max = head_max(lane, s);
        var p = 0.0;
        if visible {
            p = round_sig(exact_exp2(s - chunk_max), 12u);
        }
        weights[lane] = p;
        workgroupBarrier();

        let first_slot = max(first_key, chunk * PAGE) - chunk * PAGE;
        let end_slot = min(position - chunk * PAGE, PAGE - 1u) + 1u;
        let is_first = chunk == first_chunk;
        for (var i = lane; i < n_pairs; i += LANES) {
            let h = i / pairs_a_head;
            let dim_pair = i % pairs_a_head;
            var sum = 0.0;
            var acc = vec2<f32>(0.0);
            for (var t = first_slot; t < end_slot; t += 1u) {
                let w = weights[h * PAGE + t];
                sum = sum + w;
                // exact: 12 + 11 significant bits
                acc = acc + w * unpack2x16float(values[(page * PAGE + t) * pairs_a_head + dim_pair]);
            }
            if is_first {
                weighted[2u * i] = acc.x;
                weighted[2u * i + 1u] = acc.y;
                if dim_pair == 0u {
                    total_sum[h] = sum;
                }
            } else {
                let older = total_max[h];
                let newer = maxima[h * PAGE];
                let both = max(older, newer);
                let fa = exact_exp2(older - both);
                let fb = exact_exp2(newer - both);
                weighted[2u * i] = guard(weighted[2u * i] * fa) + guard(acc.x * fb);
                weighted[2u * i + 1u] = guard(weighted[2u * i + 1u] * fa) + guard(acc.y * fb);
                if dim_pair == 0u {
                    total_sum[h] = guard(total_sum[h] * fa) + guard(sum * fb);
                }
            }
        }
        workgroupBarrier();
        if lane < n_heads_here {
            total_max[lane] = select(max(total_max[lane], maxima[lane * PAGE]), maxima[lane * PAGE], is_first);
        }
        workgroupBarrier();
    }

    // Rows that see fewer units than the grid has leave here.
    if unit >= end_unit(position) {
        return;
    }
    for (var i = lane; i < n_values; i += LANES) {
        let h = i / params.head_dim;
        partials[partial_at(row, group.x, first_head + h) + 2u + i % params.head_dim] = weighted[i];
    }
    if lane < n_heads_here {
        let at = partial_at(row, group.x, first_head + lane);
        partials[at] = total_max[lane];
        partials[at + 1u] = total_sum[lane];
    }
}
