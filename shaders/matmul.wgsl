// out[r, out_offset + j] = weight[j] . x[r] (+ the old value), TILE rows of x a workgroup, `rows_a_group` rows of the weight.
// A lane folds one segment of ROWS neighbouring rows; then one lane an output combines its segments by the tree of adjacent pairs.
// Grid: [x, y, ceil(x rows / TILE)], x * y workgroups of LANES lanes cover the rows. TILE, ROWS, LANES and MAX_ROWS are those of src/gpu/tiles.rs.

@group(0) @binding(0) var<uniform> params: Params;
// [x rows, out_width]
@group(0) @binding(10) var<storage, read_write> out: array<f32>;

// [TILE, rows_a_group, 32]
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
    let local_row = lane / params.segments * ROWS;
    let segment = lane % params.segments;
    if local_row < params.rows_a_group && first_row + local_row < params.rows {
        var acc: array<f32, ROWS * TILE>;
        fold(first_row + local_row, segment, first_x, &acc);
        // Those past the last segment are zeros.
        for (var s = segment; s < 32u; s += params.segments) {
            for (var r = 0u; r < TILE; r += 1u) {
                for (var j = 0u; j < ROWS; j += 1u) {
                    let i = r * params.rows_a_group + local_row + j;
                    sums[sum_at(i, s)] = select(0.0, acc[j * TILE + r], s == segment);
                }
            }
        }
    }
    workgroupBarrier();
    for (var i = lane; i < params.rows_a_group * TILE; i += LANES) {
        let j = i % params.rows_a_group;
        let r = i / params.rows_a_group;
        if first_row + j < params.rows && row_runs(first_x + r) {
            let at = out_row(first_x + r) * params.out_width + params.out_offset + first_row + j;
            let value = tree32(i);
            if params.accumulate == 1u {
                out[at] = out[at] + value;
            } else {
                out[at] = value;
            }
        }
    }
}
