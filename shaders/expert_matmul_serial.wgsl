// As expert_matmul.wgsl, with one lane for a whole row, as in matmul_serial.wgsl.
// Grid: [x, y, rows * n_used], x * y workgroups of LANES rows cover the rows of an expert.

const LANES: u32 = 64u;

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
    let j = (group.y * grid.x + group.x) * LANES + lane;
    let row = part_row(pick, j);
    if row >= params.rows {
        return;
    }
    out[pick * params.out_width + params.out_offset + j] = tree(row, x_of(pick))[0];
}
