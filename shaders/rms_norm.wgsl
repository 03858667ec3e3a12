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
// By slot: where and what the guard found first, all ones before
@group(0) @binding(4) var<storage, read_write> tripped: array<atomic<u32>>;

const INFINITE: u32 = 0x7f800000u;
const NOT_FINITE: u32 = 1u;
const OVER_LIMIT: u32 = 2u;
const LAST_POSITION: u32 = 0xfffffu;

// Notes the position, the source and the kind where a magnitude reaches the limit. The least word is the earliest.
fn check(row: u32, largest: u32) {
    let slot = row_slot(row);
    if largest >= batch.states[slot].limit {
        let position = min(row_position(row), LAST_POSITION);
        let kind = select(OVER_LIMIT, NOT_FINITE, largest >= INFINITE);
        atomicMin(&tripped[slot], (position << 12u) | (params.source << 2u) | kind);
    }
}

fn value(start: u32, column: u32) -> f32 {
    if column >= params.width {
        return 0.0;
    }
    return x[start + column];
}

// Four values and their weights, 0 past the end.
struct Four {
    x: vec4<f32>,
    weight: vec4<f32>,
}

fn four(start: u32, c: u32) -> Four {
    var w = vec4<f32>(0.0);
    for (var j = 0u; j < 4u; j += 1u) {
        if c + j < params.width {
            w[j] = weight[c + j];
        }
    }
    return Four(vec4<f32>(value(start, c), value(start, c + 1u), value(start, c + 2u), value(start, c + 3u)), w);
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    if row_done(group.y) {
        return;
    }
    let start = group.y * params.width;
    var sum = 0.0;
    var largest = 0u;
    // Four loads are on their way at once; what is past the end adds 0.
    for (var i = lane; i < params.width; i += 4u * LANES) {
        let v = vec4<f32>(value(start, i), value(start, i + LANES), value(start, i + 2u * LANES), value(start, i + 3u * LANES));
        let magnitudes = bitcast<vec4<u32>>(v) & vec4<u32>(0x7fffffffu);
        largest = max(largest, max(max(magnitudes.x, magnitudes.y), max(magnitudes.z, magnitudes.w)));
        sum = sum + guard(v.x * v.x);
        sum = sum + guard(v.y * v.y);
        sum = sum + guard(v.z * v.z);
        sum = sum + guard(v.w * v.w);
    }
    // Loaded while the sum is made.
    var ahead = four(start, 4u * lane);
    check(group.y, largest);
    let total = tree256(lane, sum);
    let r = exact_rsqrt(guard(total * params.inverse_width) + params.eps);

    for (var first = 0u; first < params.width; first += 4u * LANES) {
        let c = first + 4u * lane;
        let now = ahead;
        if first + 4u * LANES < params.width {
            ahead = four(start, c + 4u * LANES);
        }
        emit(group.y, lane, c, (now.x * r) * now.weight);
    }
}
