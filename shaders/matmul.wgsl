// out[r, out_offset + j] = weight[j] . x[r] (+ the old value), TILE rows of x a workgroup, `rows_a_group` rows of the weight.
// A lane folds one segment of one row; then one lane an output combines its segments by the tree of adjacent pairs.
// Grid: [x, y, ceil(x rows / TILE)], x * y workgroups cover the rows.

const LANES: u32 = 256u;
const MAX_ROWS: u32 = 16u;

@group(0) @binding(0) var<uniform> params: Params;
// [x rows, out_width]
@group(0) @binding(10) var<storage, read_write> out: array<f32>;

// [rows_a_group, TILE, 32]
var<workgroup> sums: array<f32, MAX_ROWS * TILE * 32u>;

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    if !tile_runs(group.z * TILE) {
        return;
    }
    let first_row = (group.y * grid.x + group.x) * params.rows_a_group;
    let first_x = group.z * TILE;
    let local_row = lane / params.segments;
    let segment = lane % params.segments;
    if local_row < params.rows_a_group && first_row + local_row < params.rows {
        var acc: array<f32, TILE>;
        fold(first_row + local_row, segment, first_x, &acc);
        for (var r = 0u; r < TILE; r += 1u) {
            let at = (local_row * TILE + r) * 32u;
            sums[at + segment] = acc[r];
            for (var s = segment + params.segments; s < 32u; s += params.segments) {
                sums[at + s] = 0.0;
            }
        }
    }
    workgroupBarrier();
    for (var i = lane; i < params.rows_a_group * TILE; i += LANES) {
        let j = i % params.rows_a_group;
        let r = i / params.rows_a_group;
        if first_row + j < params.rows && row_runs(first_x + r) {
            let at = out_row(first_x + r) * params.out_width + params.out_offset + first_row + j;
            let value = tree32((j * TILE + r) * 32u);
            if params.accumulate == 1u {
                out[at] = out[at] + value;
            } else {
                out[at] = value;
            }
        }
    }
}
