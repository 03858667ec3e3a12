// out = (x * rsqrt(mean(x^2) + eps)) * weight * silu(gate), zero below 2^-100, a head a workgroup. Grid: [n_heads, rows, 1].
struct Params {
    zero: u32,
    // Values an output row (n_heads size), segments of its blocks and blocks a segment.
    width: u32,
    segments: u32,
    segment_len: u32,
    size: u32,
    // Values a row of the projections, and where the gates begin in it.
    mixed_width: u32,
    gates_at: u32,
    eps: f32,
    // 1 / size, rounded.
    inverse_size: f32,
}

const LANES: u32 = 256u;

@group(0) @binding(0) var<uniform> params: Params;
// [rows, width]
@group(0) @binding(2) var<storage, read> x: array<f32>;
// [rows, mixed_width]
@group(0) @binding(3) var<storage, read> mixed: array<f32>;
// [size]
@group(0) @binding(4) var<storage, read> weight: array<f32>;

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    if row_done(group.y) {
        return;
    }
    let start = group.y * params.width + group.x * params.size;
    var square = 0.0;
    if lane < params.size {
        square = guard(x[start + lane] * x[start + lane]);
    }
    let total = tree256(lane, square);
    let r = exact_rsqrt(guard(total * params.inverse_size) + params.eps);

    // Lanes past the head's end write nothing.
    var first = params.width;
    var values = vec4<f32>(0.0);
    if 4u * lane < params.size {
        first = group.x * params.size + 4u * lane;
        let gate = group.y * params.mixed_width + params.gates_at + first;
        for (var j = 0u; j < 4u; j += 1u) {
            let y = (x[start + 4u * lane + j] * r) * weight[4u * lane + j];
            values[j] = flush_small(exact_silu(mixed[gate + j]) * y);
        }
    }
    emit(group.y, lane, first, values);
}
