// Positions of the rows of a feed.
@group(0) @binding(1) var<storage, read> state: State;

fn row_position(row: u32) -> u32 {
    return state.position + row;
}
