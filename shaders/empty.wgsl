// As little as a dispatch can do while the next one depends on it. Grid: [1, 1, 1].
struct Params {
    zero: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(10) var<storage, read_write> out: array<u32>;

@compute @workgroup_size(32)
fn main(@builtin(local_invocation_index) lane: u32) {
    out[lane] = out[lane] + params.zero + 1u;
}
