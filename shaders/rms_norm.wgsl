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
    // What wrote x last: 0 the embedding, layer + 1 else.
    source: u32,
}

const LANES: u32 = 256u;

@group(0) @binding(0) var<uniform> params: Params;
// [rows, width]
@group(0) @binding(2) var<storage, read> x: array<f32>;
// [width]
@group(0) @binding(3) var<storage, read> weight: array<f32>;
// [1]: where and what the guard found first, all ones before
@group(0) @binding(4) var<storage, read_write> tripped: array<atomic<u32>>;

const INFINITE: u32 = 0x7f800000u;
const NOT_FINITE: u32 = 1u;
const OVER_LIMIT: u32 = 2u;
const LAST_POSITION: u32 = 0xfffffu;

// Notes the position, the source and the kind where a magnitude reaches the limit. The least word is the earliest.
fn check(row: u32, largest: u32) {
    if largest >= state.limit {
        let position = min(row_position(row), LAST_POSITION);
        let kind = select(OVER_LIMIT, NOT_FINITE, largest >= INFINITE);
        atomicMin(&tripped[0], (position << 12u) | (params.source << 2u) | kind);
    }
}

fn normed(start: u32, column: u32, r: f32) -> f32 {
    if column >= params.width {
        return 0.0;
    }
    return (x[start + column] * r) * weight[column];
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    if state.done != 0u {
        return;
    }
    let start = group.y * params.width;
    var sum = 0.0;
    var largest = 0u;
    for (var i = lane; i < params.width; i += LANES) {
        let v = x[start + i];
        sum = sum + guard(v * v);
        largest = max(largest, bitcast<u32>(v) & 0x7fffffffu);
    }
    check(group.y, largest);
    let total = tree256(lane, sum);
    let r = exact_rsqrt(guard(total * params.inverse_width) + params.eps);

    for (var first = 0u; first < params.width; first += 4u * LANES) {
        let c = first + 4u * lane;
        let values = vec4<f32>(normed(start, c, r), normed(start, c + 1u, r), normed(start, c + 2u, r), normed(start, c + 3u, r));
        emit(group.y, lane, c, values);
    }
}
