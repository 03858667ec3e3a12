// out = (x * rsqrt(mean(x^2) + eps)) * weight, a row a workgroup. Grid: [1, rows, 1].
struct Params {
    zero: u32,
    // Values a row, segments of a row's blocks and blocks a segment.
    width: u32,
    segments: u32,
    segment_len: u32,
    eps: f32,
    // 1 / width, rounded.
    inverse_width: f32,
}

const LANES: u32 = 256u;

@group(0) @binding(0) var<uniform> params: Params;
// [rows, width]
@group(0) @binding(2) var<storage, read> x: array<f32>;
// [width]
@group(0) @binding(3) var<storage, read> weight: array<f32>;

fn normed(start: u32, column: u32, r: f32) -> f32 {
    if column >= params.width {
        return 0.0;
    }
    return (x[start + column] * r) * weight[column];
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let start = group.y * params.width;
    var sum = 0.0;
    for (var i = lane; i < params.width; i += LANES) {
        let v = x[start + i];
        sum = sum + guard(v * v);
    }
    let total = tree256(lane, sum);
    let r = exact_rsqrt(guard(total * params.inverse_width) + params.eps);

    for (var first = 0u; first < params.width; first += 4u * LANES) {
        let c = first + 4u * lane;
        let values = vec4<f32>(normed(start, c, r), normed(start, c + 1u, r), normed(start, c + 2u, r), normed(start, c + 3u, r));
        emit(group.y, lane, c, values);
    }
}
