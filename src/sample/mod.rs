//! Drawing a token from logits. The rule is a pure function of (logits, settings, position, earlier tokens), so every backend draws
//! the same. docs/numerics.md defines it to the bit.

mod adjust;
mod candidates;
mod min_p;
mod order;
mod settings;
mod top_k;
mod top_p;

pub use order::order_key;
pub use settings::{GREEDY_BELOW, MAX_BIASES, MAX_WINDOW, Sampling};

pub(crate) use min_p::offset as min_p_offset;
pub(crate) use top_p::fixed as fixed_top_p;

use crate::numerics::gumbel;
use candidates::Candidate;

/// The Philox stream of the token draw.
pub const DRAW_STREAM: u32 = 0;

/// Draws the token at `position`; `history` holds the tokens before it, the last one last (only as many as penalties look at matter).
/// Ties go to the lowest id; a row where no id can be drawn gives id 0.
pub fn draw(logits: &[f32], sampling: &Sampling, position: u32, history: &[u32]) -> u32 {
    if sampling.is_plain() {
        return draw_plain(logits, sampling, position);
    }
    let values = adjust::adjusted(logits, sampling, history);
    let mut candidates = candidates::of(&values);
    if sampling.is_greedy() {
        return best(candidates);
    }
    if sampling.filters() {
        top_k::keep(&mut candidates, sampling.top_k);
        candidates::sort(&mut candidates);
        top_p::keep(&mut candidates, sampling.top_p);
        min_p::keep(&mut candidates, sampling.min_p);
    }
    best(candidates.into_iter().map(|c| {
        let noise = gumbel(sampling.seed, position, DRAW_STREAM, c.id);
        Candidate { value: c.value + noise, ..c }
    }))
}

/// The draw where nothing adjusts or filters the logits.
fn draw_plain(logits: &[f32], sampling: &Sampling, position: u32) -> u32 {
    let ids = (0..).zip(logits);
    match sampling.inverse_temperature() {
        None => best(ids.map(|(id, value)| Candidate { id, value: *value })),
        Some(factor) => best(ids.map(|(id, logit)| {
            let noise = gumbel(sampling.seed, position, DRAW_STREAM, id);
            Candidate { id, value: logit * factor + noise }
        })),
    }
}

/// The id of the largest value by the order of [`order_key`], lowest id first; 0 where every value is NaN.
fn best(candidates: impl IntoIterator<Item = Candidate>) -> u32 {
    let mut best = (0, 0);
    for Candidate { id, value } in candidates {
        let key = order_key(value);
        if key > best.0 || (key == best.0 && key > 0 && id < best.1) {
            best = (key, id);
        }
    }
    best.1
}

#[cfg(test)]
mod tests;
