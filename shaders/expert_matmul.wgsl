// out[r, p, out_offset + j] = weight[expert[r, p] * n_rows + j] . x, a pick and `rows_a_group` rows of its expert a workgroup. A lane folds one
// segment of one row; then one lane an output combines its segments by the tree of adjacent pairs.
// Grid: [x, y, rows * n_used], x * y workgroups cover the rows of an expert.

const TILE: u32 = 1u;
const LANES: u32 = 256u;
const MAX_ROWS: u32 = 16u;

// [rows_a_group, 32]
var<workgroup> sums: array<f32, MAX_ROWS * 32u>;

@compute @workgroup_size(LANES)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let pick = group.z;
    if row_done(pick / params.n_used) {
        return;
    }
    let first = (group.y * grid.x + group.x) * params.rows_a_group;
    let local_row = lane / params.segments;
    let segment = lane % params.segments;
    let row = part_row(pick, first + local_row);
    if local_row < params.rows_a_group && row < params.rows {
        var acc: array<f32, TILE>;
        fold(row, segment, x_of(pick), &acc);
        let at = local_row * 32u;
        sums[at + segment] = acc[0];
        for (var s = segment + params.segments; s < 32u; s += params.segments) {
            sums[at + s] = 0.0;
        }
    }
    workgroupBarrier();
    if lane < params.rows_a_group && part_row(pick, first + lane) < params.rows {
        out[pick * params.out_width + params.out_offset + first + lane] = tree32(lane * 32u);
    }
}
