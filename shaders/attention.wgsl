// Softmax of a few query heads over one unit of chunks, as partial results (maximum, sum, weighted values).
// Grid: [units, n_kv_heads * head_groups, rows]; a workgroup has up to HEADS query heads of one key/value head.
struct Params {
    zero: u32,
    n_heads: u32,
    n_kv_heads: u32,
    head_dim: u32,
    // Values from one query head to the next.
    query_stride: u32,
    // Groups of query heads a key/value head.
    head_groups: u32,
    // Keys seen backwards, 0 for all.
    window: u32,
    chunks_per_unit: u32,
    // Room for units a row in `partials`.
    max_units: u32,
    // Entries of a slot in the block table.
    pages_a_slot: u32,
}

const LANES: u32 = 256u;
const HEADS: u32 = 4u;
const MAX_HEAD_DIM: u32 = 256u;
// Below any score.
const LOWEST: f32 = -3.0e38;

@group(0) @binding(0) var<uniform> params: Params;
// [slots, pages_a_slot]: physical page of each logical page
@group(0) @binding(2) var<storage, read> block_table: array<u32>;
// [rows, n_heads query_stride + 2 n_kv_heads head_dim]; the query part is scaled and rounded to 11 bits
@group(0) @binding(3) var<storage, read> qkv: array<f32>;
// [rows, max_units, n_heads, 2 + head_dim]
@group(0) @binding(6) var<storage, read_write> partials: array<f32>;

var<workgroup> query: array<vec4<f32>, HEADS * MAX_HEAD_DIM / 4u>;
var<workgroup> weighted: array<f32, HEADS * MAX_HEAD_DIM>;
var<workgroup> weights: array<f32, HEADS * PAGE>;
var<workgroup> maxima: array<f32, HEADS * PAGE>;
var<workgroup> total_max: array<f32, HEADS>;
var<workgroup> total_sum: array<f32, HEADS>;

// Sums over the values 0 to 3 and 4 to 7 of each eight.
struct Halves {
    low: vec4<f32>,
    high: vec4<f32>,
}

// Adds the products of eight values, the `g`th eight of a head.
fn add_eight(sums: Halves, head: u32, g: u32, key: Eight, scale: f32) -> Halves {
    let q = (head * params.head_dim + 8u * g) / 4u;
    // exact: 11 + 11 significant bits
    let low = sums.low + query[q] * low_half(key, scale);
    // exact: 11 + 11 significant bits
    let high = sums.high + query[q + 1u] * high_half(key, scale);
    return Halves(low, high);
}

// Dot product of a query with the key of a slot. Four loads are on their way at once; a scale is that of all four.
fn score(head: u32, region: u32, slot: u32) -> f32 {
    let at = key_at(region, slot);
    let n = params.head_dim / 8u;
    var sums = Halves(vec4<f32>(0.0), vec4<f32>(0.0));
    for (var g = 0u; g < n; g += 4u) {
        let scale = key_scale(region, slot, g);
        let key0 = load_eight(at, g);
        let key1 = load_eight(at, min(g + 1u, n - 1u));
        let key2 = load_eight(at, min(g + 2u, n - 1u));
        let key3 = load_eight(at, min(g + 3u, n - 1u));
        sums = add_eight(sums, head, g, key0, scale);
        if g + 1u < n {
            sums = add_eight(sums, head, g + 1u, key1, scale);
        }
        if g + 2u < n {
            sums = add_eight(sums, head, g + 2u, key2, scale);
        }
        if g + 3u < n {
            sums = add_eight(sums, head, g + 3u, key3, scale);
        }
    }
    let low = sums.low;
    let high = sums.high;
    return ((low.x + low.y) + (low.z + low.w)) + ((high.x + high.y) + (high.z + high.w));
}

// A pair of values' weighted sum, and the sum of the weights.
struct Weighted {
    acc: vec2<f32>,
    sum: f32,
}

// Adds a pair's values in the slots from `slot` on, ascending, with head `head`'s weights. Where a weight is 0 the slot may hold anything.
fn add_four(before: Weighted, head: u32, slot: u32, pair: u32, loaded: FourPairs) -> Weighted {
    var w = before;
    for (var j = 0u; j < 4u; j += 1u) {
        let weight = weights[head * PAGE + slot + j];
        w.sum = w.sum + weight;
        // exact: 12 + 11 significant bits
        w.acc = w.acc + weight * pair_of(loaded, j, slot, pair, weight > 0.0);
    }
    return w;
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
    if row_done(group.z) {
        return;
    }
    let row = group.z;
    let position = row_position(row);
    let first_entry = row_slot(row) * params.pages_a_slot;
    let unit = first_unit(position) + group.x;
    let kv_head = group.y / params.head_groups;
    let heads_a_kv = params.n_heads / params.n_kv_heads;
    let first_of_group = group.y % params.head_groups * HEADS;
    let n_heads_here = min(HEADS, heads_a_kv - first_of_group);
    let first_head = kv_head * heads_a_kv + first_of_group;
    let n_values = n_heads_here * params.head_dim;
    let row_start = row * (params.n_heads * params.query_stride + 2u * params.n_kv_heads * params.head_dim);
    for (var i = lane; i < n_values / 4u; i += LANES) {
        let h = first_head + 4u * i / params.head_dim;
        let at = row_start + h * params.query_stride + 4u * i % params.head_dim;
        query[i] = vec4<f32>(qkv[at], qkv[at + 1u], qkv[at + 2u], qkv[at + 3u]);
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
        let region = block_table[first_entry + chunk] * params.n_kv_heads + kv_head;
        let key = chunk * PAGE + slot;
        let visible = key >= first_key && key <= position && head < n_heads_here;
        var s = LOWEST;
        if visible {
            s = score(head, region, slot);
        }
        let chunk_max = head_max(lane, s);
        var p = 0.0;
        if visible {
            p = round_sig(exact_exp2(s - chunk_max), 12u);
        }
        weights[lane] = p;
        prepare_values(region, lane);
        workgroupBarrier();

        let first_slot = max(first_key, chunk * PAGE) - chunk * PAGE;
        let end_slot = min(position - chunk * PAGE, PAGE - 1u) + 1u;
        let is_first = chunk == first_chunk;
        for (var i = lane; i < n_pairs; i += LANES) {
            let h = i / pairs_a_head;
            let dim_pair = i % pairs_a_head;
            var w = Weighted(vec2<f32>(0.0), 0.0);
            // Sixteen loads are on their way at once. Slots that are not visible have the weight 0.
            for (var t = first_slot / 16u * 16u; t < end_slot; t += 16u) {
                let loaded0 = load_pairs(region, t, dim_pair);
                let loaded1 = load_pairs(region, t + 4u, dim_pair);
                let loaded2 = load_pairs(region, t + 8u, dim_pair);
                let loaded3 = load_pairs(region, t + 12u, dim_pair);
                w = add_four(w, h, t, dim_pair, loaded0);
                w = add_four(w, h, t + 4u, dim_pair, loaded1);
                w = add_four(w, h, t + 8u, dim_pair, loaded2);
                w = add_four(w, h, t + 12u, dim_pair, loaded3);
            }
            let sum = w.sum;
            let acc = w.acc;
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
if is_first {
                total_max[lane] = maxima[lane * PAGE];
            } else {
                total_max[lane] = max(total_max[lane], maxima[lane * PAGE]);
            }
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
