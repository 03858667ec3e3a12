//! Drawing a token from logits. The rule is a pure function of (logits, seed, position), so every backend draws the same.

use crate::numerics::gumbel;

/// Temperatures below this are greedy.
pub const GREEDY_BELOW: f32 = 0.01;

/// The Philox stream of the token draw.
pub const DRAW_STREAM: u32 = 0;

/// How tokens are drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// Divides the logits; below 0.01 the largest logit wins.
    pub temperature: f32,
    /// Key of the random numbers.
    pub seed: u64,
}

impl Sampling {
    /// The largest logit always wins.
    pub const GREEDY: Sampling = Sampling { temperature: 0.0, seed: 0 };

    /// The factor on logits, or `None` for greedy.
    pub fn inverse_temperature(&self) -> Option<f32> {
        (self.temperature >= GREEDY_BELOW).then(|| 1.0 / self.temperature)
    }
}

/// Draws the token at `position`. Ties go to the lowest id; a row without any number above -infinity gives id 0.
pub fn draw(logits: &[f32], sampling: Sampling, position: u32) -> u32 {
    match sampling.inverse_temperature() {
        None => argmax(logits.iter().copied()),
        Some(factor) => argmax(
            logits
                .iter()
                .enumerate()
                .map(|(id, l)| l * factor + gumbel(sampling.seed, position, DRAW_STREAM, id as u32)),
        ),
    }
}

/// Index of the largest value by the order of [`order_key`], lowest index first.
fn argmax(values: impl Iterator<Item = f32>) -> u32 {
    let mut best = (0, 0);
    for (id, value) in values.enumerate() {
        let key = order_key(value);
        if key > best.0 {
            best = (key, id as u32);
        }
    }
    best.1
}

/// An unsigned key that orders floats as numbers; NaN gives 0, the lowest; the zeros are equal.
pub fn order_key(value: f32) -> u32 {
    let bits = value.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    if magnitude > 0x7f80_0000 {
        0
    } else if magnitude == 0 {
        0x8000_0000
    } else if bits >> 31 == 1 {
        !bits
    } else {
        bits | 0x8000_0000
    }
}
