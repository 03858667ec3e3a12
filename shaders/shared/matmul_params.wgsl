// What both forms of matmul are told about a part of a matrix.
struct Params {
    zero: u32,
    // Rows of this part of the matrix.
    rows: u32,
    // Blocks a row, its segments and blocks a segment.
    blocks: u32,
    segments: u32,
    segment_len: u32,
    // Rows a workgroup computes: in matmul.wgsl a multiple of ROWS, at most MAX_ROWS, and rows_a_group / ROWS * segments at most LANES; in
    // matmul_serial.wgsl LANES.
    rows_a_group: u32,
    // Column of the first row's result, columns of `out`.
    out_offset: u32,
    out_width: u32,
    accumulate: u32,
    // 1: a row's results go to its slot's row of `out`.
    by_slot: u32,
    quants_stride: u32,
    high_offset: u32,
    high_stride: u32,
    scales_offset: u32,
    scales_stride: u32,
    supers_offset: u32,
    supers_stride: u32,
}

fn row_runs(row: u32) -> bool {
    return row < batch.n_rows && !row_done(row);
}

// Whether any of TILE rows has work to do.
fn tile_runs(first_row: u32) -> bool {
    for (var r = 0u; r < TILE; r += 1u) {
        if row_runs(first_row + r) {
            return true;
        }
    }
    return false;
}

fn out_row(row: u32) -> u32 {
    return select(row, row_slot(row), params.by_slot == 1u);
}
