//! Drawing a token from logits. The rule is a pure function of (logits, settings, position, earlier tokens), so every backend draws
//! the same. docs/numerics.md defines it to the bit.

mod adjust;
mod candidates;
mod logprobs;
mod mass;
mod min_p;
mod noise;
mod order;
mod settings;
mod top_k;
mod top_p;
mod typical_p;

pub use logprobs::{Logprobs, MAX_TOP_LOGPROBS, top_logprobs};
pub use order::order_key;
pub use settings::{GREEDY_BELOW, MAX_BIASES, MAX_FILTERED_VOCAB, MAX_WINDOW, Sampling};

pub(crate) use mass::fixed as fixed_share;
pub(crate) use min_p::offset as min_p_offset;

use crate::numerics::philox::gumbel_of;
use candidates::Candidate;

/// The Philox stream of the token draw.
pub const DRAW_STREAM: u32 = 0;

/// Draws the token at `position`; `history` holds the tokens before it, the last one last (only as many as penalties look at matter).
/// With a `mask`, bit `id % 32` of word `id / 32` set where an id is allowed, the others cannot be drawn, and ids past its end neither.
/// Ties go to the lowest id. `None` where no id can be drawn: each is banned or masked, or its logit is NaN or -infinity.
pub fn draw(logits: &[f32], sampling: &Sampling, position: u32, history: &[u32], mask: Option<&[u32]>) -> Option<u32> {
    let word = noise::words(sampling.seed, position);
    if sampling.filters() {
        pick(kept(logits, sampling, history, mask), sampling, word)
    } else {
        pick(adjust::adjusted(logits, sampling, history, mask), sampling, word)
    }
}

/// The ids that the filters leave, in any order.
fn kept(logits: &[f32], sampling: &Sampling, history: &[u32], mask: Option<&[u32]>) -> Vec<Candidate> {
    let mut candidates = adjust::adjusted(logits, sampling, history, mask).collect();
    top_k::keep(&mut candidates, sampling.top_k);
    candidates::sort(&mut candidates);
    top_p::keep(&mut candidates, sampling.top_p);
    min_p::keep(&mut candidates, sampling.min_p);
    typical_p::keep(&mut candidates, sampling.typical_p);
    candidates
}

/// The first by the order of values, to which a draw adds the noise of each id's random word.
fn pick(
    candidates: impl IntoIterator<Item = Candidate>,
    sampling: &Sampling,
    mut word: impl FnMut(u32) -> u32,
) -> Option<u32> {
    let is_greedy = sampling.is_greedy();
    let mut best: Option<(u32, u32)> = None;
    for Candidate { id, value } in candidates {
        let key = order_key(if is_greedy { value } else { value + gumbel_of(word(id)) });
        if best.is_none_or(|(best_key, best_id)| key > best_key || (key == best_key && id < best_id)) {
            best = Some((key, id));
        }
    }
    best.map(|(_, id)| id)
}

#[cfg(test)]
mod tests;
