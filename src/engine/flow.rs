//! How many steps a submit draws and how many submits are in flight, from when bursts are submitted and when they
//! arrive.
//!
//! The device computes bursts one behind the other, `t` ms a step. A burst's tokens are read `R` ms after its work is
//! done, and its arrival lets the next one be submitted. With `d` bursts of `b` steps in flight a round trip (submit
//! to arrival) takes `max(d b t, b t + R)` and yields `d b` tokens: the device never waits once `(d - 1) b t >= R`.
//! Neither `t` nor `R` can be seen alone (a round trip times the rate is what is in flight, whatever the cause), and
//! a readback may be a poll that delivers at its ticks whatever has finished. So nothing is modelled: the controller
//! moves on a ladder of rungs, each a burst and a depth, and compares measured rates.
//!
//! - **The ladder** starts with single steps, three in flight; then the greatest depth; then longer bursts. Few
//!   tokens in flight are few discarded at a stop, and single steps are the smoothest text.
//! - **Up**, the burst doubles as long as it pays; a rung that does not pay is left for the one before. On a device
//!   that waits the rate grows nearly as much as the tokens in flight: that is seen after one round trip, all else
//!   after eight. Longer bursts are tried only where round trips are slow at all: under [`SLOW_MS`], single steps are
//!   faster than anyone reads.
//! - **The latency target** bounds the mean time between arrivals. A rung that exceeds it is left, except where
//!   arrivals are as rare at shorter bursts too: then the readback is what they wait for, and a longer burst costs
//!   nothing.
//! - **Down.** A readback that became faster does not change a busy device's rate. So once in a while the rung below
//!   is tried, and kept if it is as fast, and then the rung above. These tries become ever rarer.
//! - **Again**, when a settled rate changes: throttling, a tab in the background, a longer context.
//!
//! A rate is counted from the arrival of the last burst of the rung before, over whole round trips: as many arrivals
//! as bursts in flight, or a multiple, so that clumps of arrivals count whole. Nothing before a generation's first
//! arrival (prefill, first token) counts; a window that a short answer cuts off goes on in the next one.

use std::collections::VecDeque;

/// Round trips under this many milliseconds are no reason for longer bursts.
const SLOW_MS: f64 = 6.0;
/// The least growth of the rate for which a higher rung is kept.
const WORTH: f64 = 1.07;
/// The least share of the higher rung's rate for which a lower one is kept.
const AS_FAST: f64 = 0.95;
/// The least growth of the rate, over that of the tokens in flight, that shows at once that the device waits.
const WAITING: f64 = 0.9;
/// A settled rate that changes by more than this factor is measured anew.
const CHANGED: f64 = 1.3;
/// By how much of the target arrivals may be late in one round trip; in more, less.
const MARGIN: f64 = 0.25;
/// Round trips of the very first window.
const SHORT: usize = 2;
/// Round trips of all other windows, enough for a poll's clumps to average out.
const LONG: usize = 8;
/// A window of longer bursts that took so many milliseconds needs no more than `ENOUGH` round trips: short answers are to teach something
/// where the readback is slow.
const LONG_MS: f64 = 400.0;
const ENOUGH: usize = 2;
/// Windows between settling and trying the rungs next to it; four times as many after each try.
const FIRST_WAIT: u32 = 4;
/// The most windows between two tries.
const LONGEST_WAIT: u32 = 256;

/// Steps a burst and bursts in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rung {
    burst: usize,
    depth: usize,
}

impl Rung {
    /// Tokens in flight.
    fn tokens(self) -> f64 {
        (self.burst * self.depth) as f64
    }
}

/// What a window measured.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Measured {
    /// Tokens a millisecond.
    rate: f64,
    /// Mean milliseconds between arrivals.
    spacing_ms: f64,
    /// Mean milliseconds from submit to arrival.
    round_trip_ms: f64,
}

/// Arrivals at one rung.
#[derive(Debug, Clone, Copy, Default)]
struct Window {
    /// Arrivals that belong to what was before; the last of them starts the window.
    skip: usize,
    start_ms: f64,
    /// When the last arrival counted came, and how long the window was in earlier generations.
    last_ms: f64,
    before_ms: f64,
    bursts: usize,
    steps: usize,
    round_trips_ms: f64,
}

impl Window {
    /// A window that starts now, or with the arrival of the last of `skip` bursts.
    fn new(skip: usize, start_ms: f64) -> Self {
        Window { skip, start_ms, last_ms: start_ms, ..Window::default() }
    }

    /// The window goes on after the arrival of the last of `skip` bursts of another generation.
    fn resumed(self, skip: usize) -> Self {
        Window { skip, before_ms: self.before_ms + (self.last_ms - self.start_ms), start_ms: self.last_ms, ..self }
    }

    fn add(&mut self, steps: usize, round_trip_ms: f64, now_ms: f64) {
        if self.skip > 0 {
            self.skip -= 1;
            (self.start_ms, self.last_ms) = (now_ms, now_ms);
            return;
        }
        self.last_ms = now_ms;
        self.bursts += 1;
        self.steps += steps;
        self.round_trips_ms += round_trip_ms;
    }

    /// Whether it spans `round_trips` of `depth` bursts each, or `enough` that took long enough.
    fn spans(&self, round_trips: usize, enough: usize, depth: usize, now_ms: f64) -> bool {
        let ms = self.before_ms + now_ms - self.start_ms;
        let is_long = self.steps > self.bursts && self.bursts >= enough * depth && ms >= LONG_MS;
        self.bursts == round_trips * depth || (is_long && self.bursts.is_multiple_of(depth))
    }

    fn measured(&self, now_ms: f64) -> Measured {
        let ms = (self.before_ms + now_ms - self.start_ms).max(f64::EPSILON);
        let bursts = self.bursts as f64;
        Measured { rate: self.steps as f64 / ms, spacing_ms: ms / bursts, round_trip_ms: self.round_trips_ms / bursts }
    }
}

/// What the rung in use is for.
#[derive(Debug, Clone, Copy)]
enum Phase {
    /// Its rate is measured over so many round trips; then a higher one is tried.
    Measure { round_trips: usize },
    /// It is compared with rung `from`, which measured `was`.
    Try { from: usize, was: Measured },
    /// It stays. `was` is its first window, `windows` how many there were since.
    Settled { was: Option<Measured>, windows: u32 },
}

/// Decides burst and depth. It has no clock: every call says when it happened, in milliseconds since any start.
#[derive(Debug, Clone)]
pub(crate) struct FlowControl {
    /// Lowest first.
    ladder: Vec<Rung>,
    target_ms: f64,
    rung: usize,
    phase: Phase,
    /// Windows before the rungs next to a settled one are tried.
    wait: u32,
    /// Arrivals exceed the target, and shorter bursts did not help.
    late_anyway: bool,
    window: Window,
    /// When the bursts in flight were submitted, oldest first.
    in_flight: VecDeque<f64>,
    /// Whether the generation's first token is there.
    started: bool,
}

impl FlowControl {
    /// Adapts to the readback: bursts of 1 to `capacity` steps, up to `max_depth` in flight, arrivals at most
    /// `latency_target_ms` apart unless single steps take longer.
    pub(crate) fn adaptive(latency_target_ms: f64, capacity: usize, max_depth: usize) -> Self {
        let max_depth = max_depth.max(1);
        let shallow = (max_depth > 3).then_some(Rung { burst: 1, depth: 3 });
        let deep = bursts(capacity).into_iter().map(|burst| Rung { burst, depth: max_depth });
        Self::on(shallow.into_iter().chain(deep).collect(), latency_target_ms)
    }

    /// Always `burst` steps and `depth` bursts, each at least 1.
    pub(crate) fn fixed(burst: usize, depth: usize) -> Self {
        let mut flow = Self::on(vec![Rung { burst: burst.max(1), depth: depth.max(1) }], f64::INFINITY);
        flow.phase = Phase::Settled { was: None, windows: 0 };
        flow
    }

    fn on(ladder: Vec<Rung>, target_ms: f64) -> Self {
        FlowControl {
            ladder,
            target_ms,
            rung: 0,
            phase: Phase::Measure { round_trips: SHORT },
            wait: FIRST_WAIT,
            late_anyway: false,
            window: Window::new(1, 0.0),
            in_flight: VecDeque::new(),
            started: false,
        }
    }

    /// A generation starts: what was in flight is discarded, what was learnt stays. Where nothing was learnt yet, burst and depth are 1 until
    /// its first token arrives.
    pub(crate) fn begin(&mut self) {
        self.in_flight.clear();
        self.started = false;
        // The first token's arrival, and the round trips that began before the prompt was done.
        let skip = if self.knows() { 1 + self.depth() } else { 1 };
        self.window = self.window.resumed(skip);
    }

    /// Whether the rung is more than a beginning.
    fn knows(&self) -> bool {
        self.started || !matches!(self.phase, Phase::Measure { round_trips: SHORT })
    }

    /// Steps of the next burst.
    pub(crate) fn burst(&self) -> usize {
        if self.knows() { self.ladder[self.rung].burst } else { 1 }
    }

    /// Bursts to have in flight; more may be, just after it fell.
    pub(crate) fn depth(&self) -> usize {
        if self.knows() { self.ladder[self.rung].depth } else { 1 }
    }

    /// A burst was submitted.
    pub(crate) fn submitted(&mut self, now_ms: f64) {
        self.in_flight.push_back(now_ms);
    }

    /// The oldest burst in flight arrived with `steps` tokens.
    pub(crate) fn arrived(&mut self, steps: usize, now_ms: f64) {
        let Some(submitted_ms) = self.in_flight.pop_front() else { return };
        self.started = true;
        self.window.add(steps, now_ms - submitted_ms, now_ms);
        let depth = self.depth();
        let round_trips = if let Phase::Measure { round_trips } = self.phase { round_trips } else { LONG };
        let enough = if matches!(self.phase, Phase::Settled { .. }) { round_trips } else { ENOUGH };
        if self.window.spans(round_trips, enough, depth, now_ms) {
            self.judge(self.window.measured(now_ms), now_ms);
        } else if self.window.bursts > 0 && self.window.bursts.is_multiple_of(depth) {
            self.look(self.window.measured(now_ms), now_ms);
        }
    }

    /// After each round trip: leaves a rung whose arrivals are far too rare, goes on at once from a higher one on a
    /// device that clearly waits.
    fn look(&mut self, seen: Measured, now_ms: f64) {
        let round_trips = (self.window.bursts / self.depth()) as f64;
        let at_least = Measured { spacing_ms: seen.spacing_ms / (1.0 + MARGIN / round_trips), ..seen };
        match self.phase {
            Phase::Try { from, was } if from < self.rung => {
                if !self.may_stay(was, at_least) {
                    self.judge_higher(from, was, seen, now_ms);
                } else if self.grew(from, was, seen) >= WAITING && self.may_stay(was, seen) {
                    self.climb(seen, now_ms);
                }
            }
            Phase::Try { from, was } if self.is_late(at_least) => self.shorten(seen.rate, from, was, now_ms),
            Phase::Measure { .. } | Phase::Settled { .. } if self.is_late(at_least) => {
                self.shorten(seen.rate, self.rung, seen, now_ms)
            }
            _ => {}
        }
    }

    /// Acts on a whole window.
    fn judge(&mut self, seen: Measured, now_ms: f64) {
        match self.phase {
            Phase::Measure { .. } if self.is_late(seen) => self.shorten(seen.rate, self.rung, seen, now_ms),
            Phase::Measure { .. } => self.climb(seen, now_ms),
            Phase::Try { from, was } if from < self.rung => self.judge_higher(from, was, seen, now_ms),
            Phase::Try { from, was } => self.judge_lower(from, was, seen, now_ms),
            Phase::Settled { was: None, .. } => self.settle(Some(seen), 0, now_ms),
            Phase::Settled { was: Some(was), windows } => self.watch(was, seen, windows + 1, now_ms),
        }
    }

    fn judge_higher(&mut self, from: usize, was: Measured, seen: Measured, now_ms: f64) {
        let late = !self.may_stay(was, seen);
        let half_way = from + 1;
        if late && half_way < self.rung {
            self.try_rung(half_way, from, was, now_ms);
        } else if late || seen.rate < was.rate * WORTH {
            self.go(from, now_ms);
            if seen.rate * CHANGED < was.rate {
                return self.measure(now_ms); // more in flight cannot slow a device down: it changed meanwhile
            }
            self.phase = Phase::Settled { was: None, windows: 0 };
        } else {
            self.climb(seen, now_ms);
        }
    }

    fn judge_lower(&mut self, from: usize, was: Measured, seen: Measured, now_ms: f64) {
        let sooner = was.spacing_ms > self.target_ms && seen.spacing_ms * WORTH < was.spacing_ms;
        if sooner || seen.rate >= was.rate * AS_FAST {
            return self.descend(seen, now_ms);
        }
        if seen.round_trip_ms > was.round_trip_ms * CHANGED {
            return self.measure(now_ms); // shorter bursts cannot take longer: the device changed meanwhile
        }
        self.late_anyway = was.spacing_ms > self.target_ms;
        self.go(from, now_ms);
        self.measure(now_ms);
    }

    /// A settled rung was measured again.
    fn watch(&mut self, was: Measured, seen: Measured, windows: u32, now_ms: f64) {
        if self.is_late(seen) {
            self.shorten(seen.rate, self.rung, seen, now_ms);
        } else if seen.rate > was.rate * CHANGED || seen.rate * CHANGED < was.rate {
            self.wait = FIRST_WAIT;
            self.late_anyway = false;
            self.measure(now_ms);
        } else if windows >= self.wait {
            self.wait = (self.wait * 4).min(LONGEST_WAIT);
            self.descend(seen, now_ms);
        } else {
            self.settle(Some(was), windows, now_ms);
        }
    }

    /// The rate's growth since rung `from`, over the growth of the tokens in flight.
    fn grew(&self, from: usize, was: Measured, seen: Measured) -> f64 {
        let more = self.ladder[self.rung].tokens() / self.ladder[from].tokens();
        seen.rate / (was.rate * more)
    }

    /// Whether a higher rung's arrivals are near enough to each other, or as near as those of the lower one, `was`.
    fn may_stay(&self, was: Measured, seen: Measured) -> bool {
        self.ladder[self.rung].burst == 1 || seen.spacing_ms <= self.target_ms.max(was.spacing_ms * WORTH)
    }

    /// Whether a shorter burst may bring arrivals under the target.
    fn is_late(&self, seen: Measured) -> bool {
        self.ladder[self.rung].burst > 1 && seen.spacing_ms > self.target_ms && !self.late_anyway
    }

    /// Tries the longest burst that meets the target if the rate stays, in place of rung `from`.
    fn shorten(&mut self, rate: f64, from: usize, was: Measured, now_ms: f64) {
        let fits = |rung: &Rung| rung.burst as f64 <= self.target_ms * rate;
        let rung = self.ladder.iter().rposition(fits).unwrap_or(0).min(self.rung - 1);
        self.try_rung(rung, from, was, now_ms);
    }

    /// Tries a higher rung if there is one and the readback is slow enough for it.
    fn climb(&mut self, seen: Measured, now_ms: f64) {
        let rung = self.rung;
        let top = self.ladder.len() - 1;
        let deepest = self.ladder[top].depth;
        if self.ladder[rung].depth < deepest {
            self.try_rung(rung + 1, rung, seen, now_ms);
        } else if rung < top && seen.round_trip_ms >= SLOW_MS {
            let double = 2 * self.ladder[rung].burst;
            let next = self.ladder.iter().rposition(|r| r.burst <= double).unwrap_or(top);
            self.try_rung(next.max(rung + 1), rung, seen, now_ms);
        } else {
            self.settle(Some(seen), 0, now_ms);
        }
    }

    /// Tries the rung below; there is none below the first, so the one above.
    fn descend(&mut self, seen: Measured, now_ms: f64) {
        match self.rung {
            0 => self.climb(seen, now_ms),
            rung => self.try_rung(rung - 1, rung, seen, now_ms),
        }
    }

    fn try_rung(&mut self, rung: usize, from: usize, was: Measured, now_ms: f64) {
        self.phase = Phase::Try { from, was };
        self.go(rung, now_ms);
    }

    /// Starts over at this rung.
    fn measure(&mut self, now_ms: f64) {
        self.phase = Phase::Measure { round_trips: LONG };
        self.go(self.rung, now_ms);
    }

    /// Changes rung; what is in flight belongs to the old one.
    fn go(&mut self, rung: usize, now_ms: f64) {
        self.rung = rung;
        self.window = Window::new(self.in_flight.len(), now_ms);
    }

    /// Stays at this rung.
    fn settle(&mut self, was: Option<Measured>, windows: u32, now_ms: f64) {
        self.phase = Phase::Settled { was, windows };
        self.window = Window::new(0, now_ms);
    }
}

/// Burst lengths of the ladder: powers of two and half-way between them, up to `capacity`.
fn bursts(capacity: usize) -> Vec<usize> {
    let capacity = capacity.max(1);
    let powers = (0..usize::BITS - 1).map(|p| 1usize << p).take_while(|&power| power < capacity);
    let mut all: Vec<usize> = powers.flat_map(|power| [power, power + power / 2]).filter(|&b| b < capacity).collect();
    all.push(capacity);
    all.dedup();
    all
}

#[cfg(test)]
mod tests;
