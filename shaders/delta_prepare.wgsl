// What the gated delta rule reads: a workgroup makes one head of queries, keys or values of a row (convolution, SiLU, unit length of queries
// and keys), the last one the row's betas and decays. Grid: [2 n_key_heads + n_value_heads + 1, rows, 1].
struct Params {
    zero: u32,
    n_key_heads: u32,
    n_value_heads: u32,
    size: u32,
    kernel: u32,
    // 0: all betas, then all alphas. 1: each key head's betas, then its alphas.
    grouped: u32,
    eps: f32,
    // 1 / the root of size.
    query_scale: f32,
}

const LANES: u32 = 256u;
// 2^-24
const SMALLEST: u32 = 0x33800000u;

@group(0) @binding(0) var<uniform> params: Params;
// [rows, n_channels + n_value_heads size + 2 n_value_heads]
@group(0) @binding(2) var<storage, read> mixed: array<f32>;
// [n_channels, kernel]
@group(0) @binding(3) var<storage, read> conv: array<f32>;
// [n_value_heads] each
@group(0) @binding(4) var<storage, read> dt_bias: array<f32>;
@group(0) @binding(5) var<storage, read> rate: array<f32>;
// [slots, kernel - 1, n_channels]: position p is row p mod (kernel - 1)
@group(0) @binding(6) var<storage, read> ring: array<f32>;
// [rows, n_channels + 2 n_value_heads]
@group(0) @binding(7) var<storage, read_write> prepared: array<f32>;

fn flush(x: f32) -> f32 {
    return select(x, 0.0, (bitcast<u32>(x) & 0x7fffffffu) < SMALLEST);
}

fn n_channels() -> u32 {
    return (2u * params.n_key_heads + params.n_value_heads) * params.size;
}

fn mixed_width() -> u32 {
    return n_channels() + params.n_value_heads * (params.size + 2u);
}

// A channel's input `back` positions before that of `row`; there are none before position 0.
fn input(row: u32, channel: u32, back: u32) -> f32 {
    let position = row_position(row);
    if back <= select(0u, row, batch.chunk == 1u) {
        return mixed[(row - back) * mixed_width() + channel];
    }
    if back <= position {
        let kept = params.kernel - 1u;
        return ring[(row_slot(row) * kept + (position - back) % kept) * n_channels() + channel];
    }
    return 0.0;
}

fn convolve(row: u32, channel: u32) -> f32 {
    var sum = 0.0;
    for (var i = 0u; i < params.kernel; i += 1u) {
        sum = sum + guard(conv[channel * params.kernel + i] * input(row, channel, params.kernel - 1u - i));
    }
    return sum;
}

fn prepare_gate(row: u32, head: u32) {
    let a_key = params.n_value_heads / params.n_key_heads;
    let raw = row * mixed_width() + n_channels() + params.n_value_heads * params.size;
    let beta_at = raw + select(head, head + head / a_key * a_key, params.grouped == 1u);
    let alpha_at = beta_at + select(params.n_value_heads, a_key, params.grouped == 1u);
    let out = row * (n_channels() + 2u * params.n_value_heads) + n_channels() + head;
    prepared[out] = exact_sigmoid(mixed[beta_at]);
    let time_step = exact_softplus(mixed[alpha_at] + dt_bias[head]);
    prepared[out + params.n_value_heads] = flush(exact_exp(guard(rate[head] * time_step)));
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = group.y;
    if row_done(row) {
        return;
    }
    if group.x == 2u * params.n_key_heads + params.n_value_heads {
        for (var head = lane; head < params.n_value_heads; head += LANES) {
            prepare_gate(row, head);
        }
        return;
    }
    let inside = lane < params.size;
    let channel = group.x * params.size + lane;
    var x = 0.0;
    if inside {
        x = exact_silu(convolve(row, channel));
    }
    if group.x < 2u * params.n_key_heads {
        let r = exact_rsqrt(tree256(lane, guard(x * x)) + params.eps);
        x = flush(guard(x * r) * select(1.0, params.query_scale, group.x < params.n_key_heads));
    }
    if inside {
        prepared[row * (n_channels() + 2u * params.n_value_heads) + channel] = x;
    }
}
