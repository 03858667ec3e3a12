// out[r] = dequantise(weight[token[r]]) * scale, four values a lane. Grid: [ceil(width / 256), rows, 1].
struct Params {
    zero: u32,
    width: u32,
    // Segments of a row's blocks and blocks a segment.
    segments: u32,
    segment_len: u32,
    // The rows this part of the matrix holds; other tokens are another dispatch's.
    first_row: u32,
    rows: u32,
    scale: f32,
    quants_stride: u32,
    high_offset: u32,
    high_stride: u32,
    scales_offset: u32,
    scales_stride: u32,
    supers_offset: u32,
    supers_stride: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
// By row of a chunk, else by slot.
@group(0) @binding(4) var<storage, read> tokens: array<u32>;
// [rows, width / 4]
@group(0) @binding(10) var<storage, read_write> out: array<vec4<f32>>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    if row_done(group.y) {
        return;
    }
    let row = tokens[select(row_slot(group.y), group.y, batch.chunk == 1u)] - params.first_row;
    let i = group.x * 64u + lane;
    if row >= params.rows || 4u * i >= params.width {
        return;
    }
    let block = i / 8u;
    let place = (block % params.segment_len) * params.segments + block / params.segment_len;
    out[group.y * (params.width / 4u) + i] = weights4(row, place, block, i % 8u) * params.scale;
}
