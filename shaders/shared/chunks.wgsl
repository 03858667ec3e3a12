// Which chunks of the cache a query at a position sees, and how they are shared out to partial results: a unit is
// chunks_per_unit chunks by absolute index, so it never crosses a group of 32 chunks.
const PAGE: u32 = 64u;
const CHUNKS_PER_GROUP: u32 = 32u;

fn first_visible(position: u32) -> u32 {
    // window 0: no limit.
    return select(0u, position + 1u - params.window, params.window != 0u && position + 1u > params.window);
}

fn first_unit(position: u32) -> u32 {
    return first_visible(position) / PAGE / params.chunks_per_unit;
}

// One past the last unit.
fn end_unit(position: u32) -> u32 {
    return position / PAGE / params.chunks_per_unit + 1u;
}

// Values of a partial result a head: maximum, sum, weighted values.
fn partial_len() -> u32 {
    return params.head_dim + 2u;
}

// Where a head's partial result of a row's unit (counted from the row's first) lies.
fn partial_at(row: u32, unit: u32, head: u32) -> u32 {
    return ((row * params.max_units + unit) * params.n_heads + head) * partial_len();
}
