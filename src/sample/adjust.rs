//! Bans, biases, penalties and temperature.

use std::collections::HashMap;

use super::Sampling;
use crate::numerics::{flush_small, guard};

/// 2^64: larger magnitudes count as this.
const LARGEST: f32 = f32::from_bits(0x5f80_0000);

/// `[n_vocab]` values, `None` for ids that cannot be drawn: banned ones, and those whose logit is NaN or -infinity.
pub(super) fn adjusted(logits: &[f32], sampling: &Sampling, history: &[u32]) -> Vec<Option<f32>> {
    let biases: HashMap<u32, f32> = sampling.biases.iter().copied().collect();
    let mut counts: HashMap<u32, u32> = HashMap::new();
    for id in &history[history.len().saturating_sub(sampling.effective_window())..] {
        *counts.entry(*id).or_default() += 1;
    }
    let factor = sampling.inverse_temperature().unwrap_or(1.0);
    let value = |(id, logit): (u32, &f32)| {
        let bias = biases.get(&id).copied().unwrap_or(0.0);
        if logit.is_nan() || *logit == f32::NEG_INFINITY || bias == f32::NEG_INFINITY {
            return None;
        }
        let biased = logit.clamp(-LARGEST, LARGEST) + bias;
        let punished = counts.get(&id).map_or(biased, |count| punish(biased, *count, sampling));
        Some(flush_small(guard(punished * factor)))
    };
    (0..).zip(logits).map(value).collect()
}

/// The value of an id that stands `count` times in the window.
fn punish(value: f32, count: u32, sampling: &Sampling) -> f32 {
    let factor = if value > 0.0 { 1.0 / sampling.repeat_penalty } else { sampling.repeat_penalty };
    let repeated = guard(value * factor);
    (repeated - guard(count as f32 * sampling.frequency_penalty)) - sampling.presence_penalty
}
