// As matmul.wgsl, with one lane for a whole row: for adapters that compute on the processor, where a lane is cheap to keep busy and a
// barrier is dear. The segments are folded one after another and combined by the same tree.
// Grid: [x, y, ceil(x rows / TILE)], x * y workgroups of LANES rows.

const LANES: u32 = 64u;

@group(0) @binding(0) var<uniform> params: Params;
// [x rows, out_width]
@group(0) @binding(10) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    if !tile_runs(group.z * TILE) {
        return;
    }
    let row = (group.y * grid.x + group.x) * LANES + lane;
    if row >= params.rows {
        return;
    }
    let first_x = group.z * TILE;
    let sums = tree(row, first_x);
    for (var r = 0u; r < TILE; r += 1u) {
        if !row_runs(first_x + r) {
            continue;
        }
        let at = out_row(first_x + r) * params.out_width + params.out_offset + row;
        if params.accumulate == 1u {
            out[at] = out[at] + sums[r];
        } else {
            out[at] = sums[r];
        }
    }
}
