// What kernels know of sequences and of the rows at hand: the twin of shaders/shared/state.wgsl.
#pragma once

// What changes of a sequence from token to token; lives on the device, advanced by sample_finish.
struct State {
    // Position of the next token fed, or of the first row of a chunk.
    unsigned position;
    // 1 where the step feeds a token before it draws one, else 0.
    unsigned fed;
    // Draws since the state was written.
    unsigned step;
    // Not 0: why the row has stopped. Every kernel then leaves at once.
    unsigned done;
    // Tokens that may still be drawn.
    unsigned left;
    // Positions the cache has.
    unsigned n_ctx;
    // 1: the largest logit wins.
    unsigned greedy;
    float inverse_temperature;
    unsigned seed_low;
    unsigned seed_high;
    // Bits of the magnitude from which the guard trips.
    unsigned limit;
    // Ids in `stops`.
    unsigned n_stops;
};

// A row of a batch.
struct Row {
    unsigned slot;
    // Word of the ring for draw 0.
    unsigned first_word;
    // How it draws: the bits below.
    unsigned how;
    unsigned pad;
};

constexpr unsigned ADJUSTED = 1u;
constexpr unsigned FILTERED = 2u;
constexpr unsigned MASKED = 4u;

// The rows of the work at hand, and the states of all slots.
struct Batch {
    // 1: the rows are a chunk of one sequence, one position after another. 0: each row is another sequence's.
    unsigned chunk;
    unsigned n_rows;
    unsigned pad[2];
    // A chunk has one entry for all rows.
    Row rows[64];
    // By slot.
    State states[64];
};
