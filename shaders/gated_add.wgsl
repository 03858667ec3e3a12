// out[r] += sigmoid(gate[r]) * y[r]; products below 2^-100 are zero. Grid: [ceil(width / LANES), rows, 1].
struct Params {
    zero: u32,
    width: u32,
}

const LANES: u32 = 64u;

@group(0) @binding(0) var<uniform> params: Params;
// [rows, width]
@group(0) @binding(2) var<storage, read> y: array<f32>;
// [rows]
@group(0) @binding(3) var<storage, read> gate: array<f32>;
// [rows, width]
@group(0) @binding(10) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    if row_done(group.y) {
        return;
    }
    let c = group.x * LANES + lane;
    if c >= params.width {
        return;
    }
    let at = group.y * params.width + c;
    out[at] = out[at] + guard(flush_small(exact_sigmoid(gate[group.y]) * y[at]));
}
