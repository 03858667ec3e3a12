// out[r] += the sum of weight[r, p] * y[r, p] in the order of p. Grid: [ceil(width / LANES), rows, 1].
struct Params {
    zero: u32,
    width: u32,
    // Experts picked a row.
    n_used: u32,
}

const LANES: u32 = 64u;

@group(0) @binding(0) var<uniform> params: Params;
// [rows, n_used, width]
@group(0) @binding(2) var<storage, read> y: array<f32>;
// [rows, n_used]: id, bits of the weight
@group(0) @binding(3) var<storage, read> route: array<vec2<u32>>;
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
    var sum = 0.0;
    for (var p = 0u; p < params.n_used; p += 1u) {
        let pick = group.y * params.n_used + p;
        sum = sum + guard(flush_small(bitcast<f32>(route[pick].y) * y[pick * params.width + c]));
    }
    let at = group.y * params.width + c;
    out[at] = out[at] + sum;
}
