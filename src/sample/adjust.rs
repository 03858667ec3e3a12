//! Masks, bans, biases, penalties and temperature.

use std::collections::BTreeMap;

use super::Sampling;
use super::candidates::Candidate;
use crate::numerics::{flush_small, guard};

/// 2^64: larger magnitudes count as this.
const LARGEST: f32 = f32::from_bits(0x5f80_0000);

/// A logit as the sampler sees it; `None` for one that cannot be drawn.
pub(super) fn usable(logit: f32) -> Option<f32> {
    let out = logit.is_nan() || logit == f32::NEG_INFINITY;
    (!out).then(|| logit.clamp(-LARGEST, LARGEST))
}

/// Whether `mask` allows an id; an id past its end it does not.
fn allows(mask: Option<&[u32]>, id: u32) -> bool {
    mask.is_none_or(|mask| mask.get(id as usize / 32).is_some_and(|word| (word >> (id % 32)) & 1 == 1))
}

/// The ids that can be drawn, ascending, with their values. Ids of biases and history are below `n_vocab`; ids that are masked or banned, and those
/// whose logit is NaN or -infinity, are left out.
pub(super) fn adjusted<'a>(
    logits: &'a [f32],
    sampling: &'a Sampling,
    history: &[u32],
    mask: Option<&'a [u32]>,
) -> impl Iterator<Item = Candidate> + use<'a> {
    // A bias and a number of occurrences for the few ids that have them.
    let mut changes: BTreeMap<u32, (f32, u32)> = BTreeMap::new();
    for &(id, bias) in &sampling.biases {
        changes.entry(id).or_default().0 = bias;
    }
    for id in &history[history.len().saturating_sub(sampling.effective_window())..] {
        changes.entry(*id).or_default().1 += 1;
    }
    let mut changes = changes.into_iter().peekable();
    let factor = sampling.inverse_temperature().unwrap_or(1.0);
    let value = move |(id, logit): (u32, &f32)| {
        let change = changes.next_if(|(changed, _)| *changed == id);
        let (bias, count) = change.map_or((0.0, 0), |(_, change)| change);
        let logit = usable(*logit).filter(|_| bias != f32::NEG_INFINITY && allows(mask, id))?;
        let biased = logit + bias;
        let punished = if count > 0 { punish(biased, count, sampling) } else { biased };
        Some(Candidate { id, value: flush_small(guard(punished * factor)) })
    };
    (0..).zip(logits).filter_map(value)
}

/// The value of an id that stands `count` times in the window.
fn punish(value: f32, count: u32, sampling: &Sampling) -> f32 {
    let factor = if value > 0.0 { 1.0 / sampling.repeat_penalty } else { sampling.repeat_penalty };
    let repeated = guard(value * factor);
    (repeated - guard(count as f32 * sampling.frequency_penalty)) - sampling.presence_penalty
}
