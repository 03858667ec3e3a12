// Folds a segment of a row, block after block.
fn fold(row: u32, segment: u32, first_x: u32, acc: ptr<function, array<f32, TILE>>) {
    for (var t = 0u; t < params.segment_len; t += 1u) {
        add_block(block_of(row, segment, t), place_of(segment, t), first_x, acc);
    }
}
