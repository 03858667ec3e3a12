// Folds a segment of ROWS rows of the weight at once, block after block: a block of x that was loaded serves all of them. Up to four blocks of
// weights are on their way at once.
const AHEAD: u32 = max(4u / ROWS, 1u);

// Loads block `t` of a segment of rows `row` .. `row + ROWS` to `first` .. `first + ROWS` of `w`. Rows past the last are read as the last; nobody
// asks for their sums.
fn load_blocks(row: u32, segment: u32, t: u32, w: ptr<function, array<Block, AHEAD * ROWS>>, first: u32) {
    for (var j = 0u; j < ROWS; j += 1u) {
        (*w)[first + j] = block_of(min(row + j, params.rows - 1u), segment, t);
    }
}

// Adds the terms of ROWS blocks and the block at `place` of each row of x to `acc`, [ROWS, TILE].
fn add_blocks(
    w: ptr<function, array<Block, AHEAD * ROWS>>,
    first: u32,
    place: u32,
    first_x: u32,
    acc: ptr<function, array<f32, ROWS * TILE>>,
) {
    for (var r = 0u; r < TILE; r += 1u) {
        let x = activations(first_x + r, place);
        for (var j = 0u; j < ROWS; j += 1u) {
            (*acc)[j * TILE + r] = (*acc)[j * TILE + r] + term((*w)[first + j], x);
        }
    }
}

fn fold(row: u32, segment: u32, first_x: u32, acc: ptr<function, array<f32, ROWS * TILE>>) {
    var w: array<Block, AHEAD * ROWS>;
    var t = 0u;
    for (; t + AHEAD <= params.segment_len; t += AHEAD) {
        for (var a = 0u; a < AHEAD; a += 1u) {
            load_blocks(row, segment, t + a, &w, a * ROWS);
        }
        for (var a = 0u; a < AHEAD; a += 1u) {
            add_blocks(&w, a * ROWS, place_of(segment, t + a), first_x, acc);
        }
    }
    if AHEAD > 1u {
        for (; t < params.segment_len; t += 1u) {
            load_blocks(row, segment, t, &w, 0u);
            add_blocks(&w, 0u, place_of(segment, t), first_x, acc);
        }
    }
}
