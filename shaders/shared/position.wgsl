// Position of a row.
fn row_position(row: u32) -> u32 {
    let first = batch.states[row_slot(row)].position;
    return select(first, first + row, batch.chunk == 1u);
}
