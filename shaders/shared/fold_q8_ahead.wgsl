// Folds a segment of a row, block after block. Up to four blocks are on their way at once: on a GPU their latency is most of the time.
fn fold(row: u32, segment: u32, first_x: u32, acc: ptr<function, array<f32, TILE>>) {
    var t = 0u;
    for (; t + 4u <= params.segment_len; t += 4u) {
        let w0 = block_of(row, segment, t);
        let w1 = block_of(row, segment, t + 1u);
        let w2 = block_of(row, segment, t + 2u);
        let w3 = block_of(row, segment, t + 3u);
        add_block(w0, place_of(segment, t), first_x, acc);
        add_block(w1, place_of(segment, t + 1u), first_x, acc);
        add_block(w2, place_of(segment, t + 2u), first_x, acc);
        add_block(w3, place_of(segment, t + 3u), first_x, acc);
    }
    if t + 2u <= params.segment_len {
        let w0 = block_of(row, segment, t);
        let w1 = block_of(row, segment, t + 1u);
        add_block(w0, place_of(segment, t), first_x, acc);
        add_block(w1, place_of(segment, t + 1u), first_x, acc);
        t += 2u;
    }
    if t < params.segment_len {
        add_block(block_of(row, segment, t), place_of(segment, t), first_x, acc);
    }
}
