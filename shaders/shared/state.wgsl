// What changes of a sequence from token to token; lives on the device, advanced by sample_finish.
struct State {
    // Position of the next token fed, or of the first row of a chunk.
    position: u32,
    // 1 where the step feeds a token before it draws one, else 0.
    fed: u32,
    // Draws since the state was written.
    step: u32,
    // Not 0: why the row has stopped. Every kernel then leaves at once.
    done: u32,
    // Tokens that may still be drawn.
    left: u32,
    // Positions the cache has.
    n_ctx: u32,
    // 1: the largest logit wins.
    greedy: u32,
    inverse_temperature: f32,
    seed_low: u32,
    seed_high: u32,
    // Bits of the magnitude from which the guard trips.
    limit: u32,
    // Ids in `stops`.
    n_stops: u32,
}

// The rows of the work at hand, and the states of all slots.
struct Batch {
    // 1: the rows are a chunk of one sequence, one position after another. 0: each row is another sequence's.
    chunk: u32,
    n_rows: u32,
    pad0: u32,
    pad1: u32,
    // Slot, word of the ring for draw 0, how the row draws (bits below), 0. A chunk has one entry for all rows.
    rows: array<vec4<u32>, 64>,
    // By slot.
    states: array<State, 64>,
}

// How a row draws.
const ADJUSTED: u32 = 1u;
const FILTERED: u32 = 2u;
const MASKED: u32 = 4u;
