// out[r, p, out_offset + j] = weight[expert[r, p] * n_rows + j] . x, a pick and `rows_a_group` rows of its expert a workgroup. A lane folds one
// segment of one row; then one lane an output combines its segments by the tree of adjacent pairs.
// Grid: [x, y, rows * n_used], x * y workgroups of LANES lanes cover the rows of an expert. LANES and MAX_ROWS are those of src/gpu/tiles.rs for a
// TILE of 1, whose lanes fold one row.

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
        // Those past the last segment are zeros.
        for (var s = segment; s < 32u; s += params.segments) {
            sums[sum_at(local_row, s)] = select(0.0, acc[0], s == segment);
        }
    }
    workgroupBarrier();
    if lane < params.rows_a_group && part_row(pick, first + lane) < params.rows {
        out[pick * params.out_width + params.out_offset + first + lane] = tree32(lane);
    }
}
