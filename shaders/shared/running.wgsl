// The rows and states as kernels see them that do not advance them.
@group(0) @binding(1) var<uniform> batch: Batch;

fn row_slot(row: u32) -> u32 {
    return batch.rows[select(row, 0u, batch.chunk == 1u)].x;
}

// Whether the row has ended: it then does no work.
fn row_done(row: u32) -> bool {
    return batch.states[row_slot(row)].done != 0u;
}
