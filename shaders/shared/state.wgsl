// What changes from token to token; lives on the device, advanced by sample_finish.
struct State {
    // Position of row 0 of the feed.
    position: u32,
    // 1 where the step feeds a token before it draws one, else 0.
    fed: u32,
    // Word of the ring the next drawn token goes to.
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
