//! The clock's times of operations and of calls.

use std::sync::Arc;

use crate::engine::backend::Timing;
use crate::engine::clock::now_ms;
use crate::engine::ledger::{Ledger, Phase, Sum};
use crate::plan::{Op, Plan, Tag};

/// A list of the plan's operations.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part {
    Body,
    Head,
    Sample,
    Embed,
}

impl Part {
    const ALL: [Part; 4] = [Part::Body, Part::Head, Part::Sample, Part::Embed];

    pub(super) fn ops(self, plan: &Plan) -> &[Op] {
        match self {
            Part::Body => &plan.body,
            Part::Head => &plan.head,
            Part::Sample => &plan.sample,
            Part::Embed => &plan.embed,
        }
    }
}

/// Times what it is told to.
pub(super) struct Stopwatch {
    timing: Timing,
    /// Of the call under way.
    phase: Option<Phase>,
    ledger: Ledger,
    /// By part, as its operations.
    tags: [Vec<Arc<Tag>>; 4],
}

impl Stopwatch {
    /// Times nothing yet.
    pub(super) fn new(plan: &Plan) -> Self {
        let of = |part: Part| plan.tags(part.ops(plan), matches!(part, Part::Body)).into_iter().map(Arc::new).collect();
        Stopwatch { timing: Timing::Off, phase: None, ledger: Ledger::default(), tags: Part::ALL.map(of) }
    }

    pub(super) fn set(&mut self, timing: Timing) {
        self.timing = timing;
    }

    pub(super) fn timing(&self) -> Timing {
        self.timing
    }

    /// A call of `phase` begins.
    pub(super) fn start_submit(&mut self, phase: Phase) -> f64 {
        self.phase = Some(phase);
        if self.timing == Timing::Off { 0.0 } else { now_ms() }
    }

    /// The call that began at `start` has fed or drawn `tokens`.
    pub(super) fn end_submit(&mut self, start: f64, tokens: usize) {
        let Some(phase) = self.phase.take().filter(|_| self.timing != Timing::Off) else { return };
        self.ledger.add_tokens(phase, tokens);
        if self.timing == Timing::Submits {
            self.ledger.add_submit(phase, now_ms() - start);
        }
    }

    /// An operation begins.
    pub(super) fn start_step(&self) -> f64 {
        if self.timing == Timing::Ops { now_ms() } else { 0.0 }
    }

    /// Operation `at` of `part` has run since `start`.
    pub(super) fn end_step(&mut self, part: Part, at: usize, start: f64) {
        if let (Timing::Ops, Some(phase)) = (self.timing, self.phase) {
            let ms = now_ms() - start;
            if let Some(tag) = self.tags[part as usize].get(at) {
                self.ledger.add_steps(phase, tag, Sum { count: 1, ms });
            }
        }
    }

    /// What was timed since the last call.
    pub(super) fn take(&mut self) -> Ledger {
        std::mem::take(&mut self.ledger)
    }
}
