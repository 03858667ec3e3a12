//! How an engine decodes: what may change its speed and what it does when something goes wrong, never which tokens it draws.

use super::backend::Execution;
pub use super::backend::{RingSize, Timing};
use crate::error::{Error, Result};

/// Steps a submit and submits in flight.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Flow {
    /// Single steps, several in flight; more steps a submit only where reading back is slow.
    Adaptive {
        /// Milliseconds between arrivals of tokens at most, where a single step is not slower, 1 to 10,000.
        latency_ms: f64,
    },
    /// Always the same.
    Fixed {
        /// Steps a submit, at least 1 and at most the ring's.
        burst: usize,
        /// Submits in flight, at least 1 and at most the ring's slots; 1 waits for each submit before the next.
        in_flight: usize,
    },
}

/// Where the ids that end an answer are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopCheck {
    /// On the device after every step: what follows in the burst does no work.
    PerToken,
    /// On the host when a burst was read.
    PerBurst,
}

/// What to do where the guard trips.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaction {
    /// The answer ends with [`Error::NotFinite`].
    Error,
    /// The step is done again with the whole range of f32, which the hidden state has; the limit is back after `window` tokens. A value that is not
    /// finite then is an error.
    Widen {
        /// Tokens.
        window: usize,
    },
}

/// Looks for values in the hidden state that make an answer gibberish.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Guard {
    /// The magnitude that trips it, above 0; infinity lets every finite value pass.
    pub limit: f32,
    /// What happens then.
    pub reaction: Reaction,
}

/// How an engine decodes. Every policy gives the same tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Policy {
    /// Steps a submit and submits in flight.
    pub flow: Flow,
    /// What the ring has room for.
    pub ring: RingSize,
    /// Where stop ids are looked for.
    pub stop_check: StopCheck,
    /// `None` lets everything pass.
    pub guard: Option<Guard>,
    /// Whether a burst is one submit; else every dispatch is one, for finding faults.
    pub batch_commands: bool,
    /// What of the device's work is timed.
    pub timing: Timing,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            flow: Flow::Adaptive { latency_ms: 50.0 },
            ring: RingSize::default(),
            stop_check: StopCheck::PerToken,
            guard: Some(Guard { limit: f32::INFINITY, reaction: Reaction::Error }),
            batch_commands: true,
            timing: Timing::Off,
        }
    }
}

impl Policy {
    /// The default with a fixed number of steps a submit and submits in flight.
    pub fn fixed(burst: usize, in_flight: usize) -> Self {
        Policy { flow: Flow::Fixed { burst, in_flight }, ..Policy::default() }
    }

    /// The default with this many steps a submit and submits in flight. Where neither is given they adapt; where one is, the other is 1 step and 4
    /// in flight.
    pub fn of_flow(burst: Option<usize>, in_flight: Option<usize>) -> Self {
        match (burst, in_flight) {
            (None, None) => Policy::default(),
            _ => Policy::fixed(burst.unwrap_or(1), in_flight.unwrap_or(4)),
        }
    }

    /// Checks every number against its range.
    ///
    /// # Errors
    /// `BadOption` names the number and its range.
    pub fn check(&self) -> Result<()> {
        let bad = |option, found: String, expected| Err(Error::BadOption { option, found, expected });
        self.ring.check()?;
        match self.flow {
            Flow::Adaptive { latency_ms } if !(1.0..=10_000.0).contains(&latency_ms) => {
                return bad("latency target", latency_ms.to_string(), "1 to 10000 milliseconds");
            }
            Flow::Fixed { burst, .. } if !(1..=self.ring.steps).contains(&burst) => {
                return bad("burst", burst.to_string(), "at least 1 and at most the ring's steps");
            }
            Flow::Fixed { in_flight, .. } if !(1..=self.ring.slots).contains(&in_flight) => {
                return bad("bursts in flight", in_flight.to_string(), "at least 1 and at most the ring's slots");
            }
            _ => {}
        }
        match self.guard {
            Some(Guard { limit, .. }) if limit.is_nan() || limit <= 0.0 => {
                bad("guard limit", limit.to_string(), "a number above 0")
            }
            _ => Ok(()),
        }
    }

    /// Whether steps that trip the guard are done again without its limit.
    pub(super) fn widens(&self) -> bool {
        self.guard.is_some_and(|guard| matches!(guard.reaction, Reaction::Widen { .. }))
    }

    /// What the backend needs to know; `wide` lets every finite value pass.
    pub(super) fn execution(&self, wide: bool) -> Execution {
        Execution {
            ring: self.ring,
            split_submits: !self.batch_commands,
            guard_limit: self.guard.map(|guard| if wide { f32::INFINITY } else { guard.limit }),
            timing: self.timing,
        }
    }
}
