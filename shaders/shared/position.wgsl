// Positions of the rows of a feed.
fn row_position(row: u32) -> u32 {
    return state.position + row;
}
