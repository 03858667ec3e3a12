// out = activation(gate) * up, zero below 2^-100, a vector a workgroup of y. Grid: [ceil(width / 256), rows * vectors, 1].
struct Params {
    zero: u32,
    // Vectors a row; values an output vector, segments of its blocks and blocks a segment.
    vectors: u32,
    width: u32,
    segments: u32,
    segment_len: u32,
    // 0: silu, 1: gelu (tanh form).
    activation: u32,
}

const LANES: u32 = 64u;

@group(0) @binding(0) var<uniform> params: Params;
// [rows, vectors, 2 width]: gate, up
@group(0) @binding(2) var<storage, read> gate_up: array<f32>;

fn gated(start: u32, column: u32) -> f32 {
    if column >= params.width {
        return 0.0;
    }
    let gate = gate_up[start + column];
    var activated: f32;
    if params.activation == 0u {
        activated = exact_silu(gate);
    } else {
        activated = exact_gelu_tanh(gate);
    }
    return flush_small(activated * gate_up[start + params.width + column]);
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    if row_done(group.y / params.vectors) {
        return;
    }
    let start = group.y * 2u * params.width;
    let c = group.x * 4u * LANES + 4u * lane;
    let values = vec4<f32>(gated(start, c), gated(start, c + 1u), gated(start, c + 2u), gated(start, c + 3u));
    emit(group.y, lane, c, values);
}
