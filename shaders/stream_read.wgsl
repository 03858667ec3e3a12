// Reads a whole buffer once and keeps one word of it, so that no read can be left out. Grid: [groups, 1, 1].
struct Params {
    zero: u32,
    // vec4 a lane reads, LANES * groups apart.
    reads: u32,
}

const LANES: u32 = 256u;

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> data: array<vec4<u32>>;
@group(0) @binding(10) var<storage, read_write> out: array<u32>;

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let stride = grid.x * LANES;
    var at = group.x * LANES + lane;
    var seen = vec4<u32>(0u);
    for (var i = 0u; i < params.reads; i += 4u) {
        seen ^= data[at] ^ data[at + stride] ^ data[at + 2u * stride] ^ data[at + 3u * stride];
        at += 4u * stride;
    }
    // Never true: the buffer holds zeros.
    if (seen.x | seen.y | seen.z | seen.w) == 1u {
        out[0] = seen.x;
    }
}
