//! Times as a backend gathers them, before they become a report.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::plan::Tag;

/// A part of a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Until the first token is drawn.
    Prefill,
    /// After it.
    Decode,
}

impl Phase {
    /// Both, in order.
    pub const ALL: [Phase; 2] = [Phase::Prefill, Phase::Decode];
}

/// Coarser timestamps than this say nothing about a single step.
const FINEST_NS: f64 = 2_000.0;

/// Times of steps that have the same tag.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Sum {
    pub(crate) count: u64,
    pub(crate) ms: f64,
}

impl Sum {
    pub(crate) fn add(&mut self, other: Sum) {
        self.count += other.count;
        self.ms += other.ms;
    }
}

/// What was timed since the ledger was opened.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger {
    steps: BTreeMap<(Phase, Arc<Tag>), Sum>,
    /// Submits as a whole, by phase.
    submits: [Sum; 2],
    /// Tokens fed (prefill) and drawn (decode).
    tokens: [u64; 2],
    /// Greatest common divisor of the device's timestamps, 0 before the first.
    quantum: u64,
    ns_per_tick: f64,
}

impl Ledger {
    /// Adds the time of `sum.count` steps.
    pub(crate) fn add_steps(&mut self, phase: Phase, tag: &Arc<Tag>, sum: Sum) {
        self.steps.entry((phase, tag.clone())).or_default().add(sum);
    }

    /// Adds the time of a submit.
    pub(crate) fn add_submit(&mut self, phase: Phase, ms: f64) {
        self.submits[phase as usize].add(Sum { count: 1, ms });
    }

    pub(crate) fn add_tokens(&mut self, phase: Phase, n: usize) {
        self.tokens[phase as usize] += n as u64;
    }

    /// Notes timestamps as the device gave them.
    pub(crate) fn note_ticks(&mut self, ticks: &[u64], ns_per_tick: f64) {
        self.quantum = ticks.iter().fold(self.quantum, |divisor, tick| gcd(divisor, *tick));
        self.ns_per_tick = ns_per_tick;
    }

    /// Whether the device rounds its timestamps so much that they say nothing about a step.
    pub(crate) fn is_coarse(&self) -> bool {
        self.quantum as f64 * self.ns_per_tick > FINEST_NS
    }

    /// Takes `ms` off the time of every step.
    pub(crate) fn subtract(&mut self, ms: f64) {
        for sum in self.steps.values_mut() {
            sum.ms = (sum.ms - sum.count as f64 * ms).max(0.0);
        }
    }

    pub(crate) fn steps(&self) -> impl Iterator<Item = (Phase, &Arc<Tag>, Sum)> {
        self.steps.iter().map(|((phase, tag), sum)| (*phase, tag, *sum))
    }

    /// Milliseconds of the phase's submits, where they were timed.
    pub(crate) fn busy_ms(&self, phase: Phase) -> Option<f64> {
        let submits = self.submits[phase as usize];
        (submits.count > 0).then_some(submits.ms)
    }

    pub(crate) fn tokens(&self, phase: Phase) -> u64 {
        self.tokens[phase as usize]
    }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounded_timestamps_are_noticed() {
        let cases: [(&[u64], f64, bool); 5] = [
            (&[], 1.0, false),
            (&[1 << 16, 3 << 16, 7 << 16], 1.0, true),
            (&[100_000, 300_000, 1_000_000], 1.0, true),
            (&[100_000, 300_001], 1.0, false),
            (&[32, 96, 1024], 1.0, false),
        ];
        for (ticks, ns_per_tick, coarse) in cases {
            let mut ledger = Ledger::default();
            ledger.note_ticks(ticks, ns_per_tick);
            assert_eq!(ledger.is_coarse(), coarse, "{ticks:?}");
        }
    }

    #[test]
    fn no_time_falls_below_zero() {
        let mut ledger = Ledger::default();
        for (detail, ms) in [("a", 5.0), ("b", 1.0)] {
            ledger.add_steps(Phase::Decode, &Arc::new(Tag::of("matmul", detail)), Sum { count: 2, ms });
        }
        ledger.subtract(1.5);
        assert_eq!(ledger.steps().map(|(_, _, sum)| (sum.count, sum.ms)).collect::<Vec<_>>(), [(2, 2.0), (2, 0.0)]);
    }

    #[test]
    fn phases_are_apart() {
        let mut ledger = Ledger::default();
        let tag = Arc::new(Tag::of("sample", "64"));
        ledger.add_steps(Phase::Prefill, &tag, Sum { count: 1, ms: 2.0 });
        ledger.add_steps(Phase::Decode, &tag, Sum { count: 3, ms: 4.0 });
        ledger.add_steps(Phase::Decode, &tag, Sum { count: 1, ms: 1.0 });
        ledger.add_submit(Phase::Decode, 6.0);
        let sums: Vec<_> = ledger.steps().map(|(phase, _, sum)| (phase, sum.count, sum.ms)).collect();
        assert_eq!(sums, [(Phase::Prefill, 1, 2.0), (Phase::Decode, 4, 5.0)]);
        assert_eq!((ledger.busy_ms(Phase::Prefill), ledger.busy_ms(Phase::Decode)), (None, Some(6.0)));
    }
}
