//! Bans, biases, penalties and temperature.

use super::Sampling;
use crate::numerics::{flush_small, guard};

/// 2^64: larger magnitudes count as this.
const LARGEST: f32 = f32::from_bits(0x5f80_0000);

/// A logit as the sampler sees it; `None` for one that cannot be drawn.
pub(super) fn usable(logit: f32) -> Option<f32> {
    let out = logit.is_nan() || logit == f32::NEG_INFINITY;
    (!out).then(|| logit.clamp(-LARGEST, LARGEST))
}

/// Ids of biases and history are below `n_vocab`. Gives `[n_vocab]` values, `None` for ids that cannot be drawn: banned ones, and those whose logit is NaN or -infinity.
pub(super) fn adjusted(logits: &[f32], sampling: &Sampling, history: &[u32]) -> Vec<Option<f32>> {
    let mut biases = vec![0.0; logits.len()];
    for &(id, bias) in &sampling.biases {
        biases[id as usize] = bias;
    }
    let mut counts = vec![0; logits.len()];
    for id in &history[history.len().saturating_sub(sampling.effective_window())..] {
        counts[*id as usize] += 1;
    }
    let factor = sampling.inverse_temperature().unwrap_or(1.0);
    let value = |((logit, bias), count): ((&f32, f32), u32)| {
        let logit = usable(*logit).filter(|_| bias != f32::NEG_INFINITY)?;
        let biased = logit + bias;
        let punished = if count > 0 { punish(biased, count, sampling) } else { biased };
        Some(flush_small(guard(punished * factor)))
    };
    logits.iter().zip(biases).zip(counts).map(value).collect()
}

/// The value of an id that stands `count` times in the window.
fn punish(value: f32, count: u32, sampling: &Sampling) -> f32 {
    let factor = if value > 0.0 { 1.0 / sampling.repeat_penalty } else { sampling.repeat_penalty };
    let repeated = guard(value * factor);
    (repeated - guard(count as f32 * sampling.frequency_penalty)) - sampling.presence_penalty
}
