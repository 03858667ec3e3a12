// The gated delta rule, row after row: M = g M, delta = beta (v - M k), M = M + delta k, out = M q. A workgroup has COLUMNS columns of one
// value head's state; eight lanes share a column, lane j of them its values i = j mod 8. All workgroups together keep the rows' inputs in
// the ring. Grid: [n_value_heads SIZE / COLUMNS, 1, sequences].
struct Params {
    zero: u32,
    n_key_heads: u32,
    n_value_heads: u32,
    kernel: u32,
    // 0: value head j reads key head j mod n_key_heads. 1: j / (n_value_heads / n_key_heads).
    grouped: u32,
}

const LANES: u32 = 256u;
const PARTS: u32 = 8u;
const COLUMNS: u32 = LANES / PARTS;
const VALUES: u32 = SIZE / PARTS;

@group(0) @binding(0) var<uniform> params: Params;
// [rows, n_channels + n_value_heads SIZE + 2 n_value_heads]
@group(0) @binding(2) var<storage, read> mixed: array<f32>;
// [rows, n_channels + 2 n_value_heads]
@group(0) @binding(3) var<storage, read> prepared: array<f32>;
// [slots, n_value_heads, SIZE, SIZE], a column contiguous
@group(0) @binding(4) var<storage, read_write> states: array<f32>;
// [slots, kernel - 1, n_channels]: position p is row p mod (kernel - 1)
@group(0) @binding(5) var<storage, read_write> ring: array<f32>;
// [rows, n_value_heads SIZE]
@group(0) @binding(6) var<storage, read_write> out: array<f32>;

var<workgroup> query: array<f32, SIZE>;
var<workgroup> key: array<f32, SIZE>;
var<workgroup> key_sums: array<f32, LANES>;
var<workgroup> query_sums: array<f32, LANES>;

fn n_channels() -> u32 {
    return (2u * params.n_key_heads + params.n_value_heads) * SIZE;
}

fn key_head(head: u32) -> u32 {
    if params.grouped == 1u {
        return head / (params.n_value_heads / params.n_key_heads);
    }
    return head % params.n_key_heads;
}

// Keeps the inputs of the last rows.
fn fill_ring(first: u32, step: u32, first_row: u32, n_rows: u32) {
    let kept = params.kernel - 1u;
    let mixed_width = n_channels() + params.n_value_heads * (SIZE + 2u);
    for (var channel = first; channel < n_channels(); channel += step) {
        for (var r = n_rows - min(n_rows, kept); r < n_rows; r += 1u) {
            let row = first_row + r;
            let at = (row_slot(row) * kept + row_position(row) % kept) * n_channels() + channel;
            ring[at] = mixed[row * mixed_width + channel];
        }
    }
}

fn sum_keys(lane: u32) -> f32 {
    let i = lane & ~7u;
    return ((key_sums[i] + key_sums[i + 1u]) + (key_sums[i + 2u] + key_sums[i + 3u]))
        + ((key_sums[i + 4u] + key_sums[i + 5u]) + (key_sums[i + 6u] + key_sums[i + 7u]));
}

fn sum_queries(lane: u32) -> f32 {
    let i = lane & ~7u;
    return ((query_sums[i] + query_sums[i + 1u]) + (query_sums[i + 2u] + query_sums[i + 3u]))
        + ((query_sums[i + 4u] + query_sums[i + 5u]) + (query_sums[i + 6u] + query_sums[i + 7u]));
}

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    // A sequence has one row, or all of them.
    let first_row = group.z;
    let n_rows = select(1u, batch.n_rows, batch.chunk == 1u);
    if row_done(first_row) {
        return;
    }
    fill_ring(group.x * LANES + lane, groups.x * LANES, first_row, n_rows);

    let head = group.x / (SIZE / COLUMNS);
    let column = group.x % (SIZE / COLUMNS) * COLUMNS + lane / PARTS;
    let part = lane % PARTS;
    let state_at = ((row_slot(first_row) * params.n_value_heads + head) * SIZE + column) * SIZE + part;
    var values: array<f32, VALUES>;
    for (var i = 0u; i < VALUES; i += 1u) {
        values[i] = 0.0;
        if row_position(first_row) != 0u {
            values[i] = states[state_at + PARTS * i];
        }
    }
    let prepared_width = n_channels() + 2u * params.n_value_heads;
    for (var r = 0u; r < n_rows; r += 1u) {
        let row = first_row + r;
        let start = row * prepared_width;
        if lane < SIZE {
            query[lane] = prepared[start + key_head(head) * SIZE + lane];
            key[lane] = prepared[start + (params.n_key_heads + key_head(head)) * SIZE + lane];
        }
        let value = prepared[start + (2u * params.n_key_heads + head) * SIZE + column];
        let beta = prepared[start + n_channels() + head];
        let decay = prepared[start + n_channels() + params.n_value_heads + head];
        workgroupBarrier();

        var sum = 0.0;
        for (var i = 0u; i < VALUES; i += 1u) {
            values[i] = guard(values[i] * decay);
            sum = sum + guard(values[i] * key[PARTS * i + part]);
        }
        key_sums[lane] = sum;
        workgroupBarrier();

        let delta = flush_small(guard((value - sum_keys(lane)) * beta));
        sum = 0.0;
        for (var i = 0u; i < VALUES; i += 1u) {
            values[i] = flush_small(values[i] + guard(key[PARTS * i + part] * delta));
            sum = sum + guard(values[i] * query[PARTS * i + part]);
        }
        query_sums[lane] = sum;
        workgroupBarrier();

        if part == 0u {
            out[(row * params.n_value_heads + head) * SIZE + column] = sum_queries(lane);
        }
    }
    for (var i = 0u; i < VALUES; i += 1u) {
        states[state_at + PARTS * i] = values[i];
    }
}
