//! The controller against simulated devices, on a virtual clock.

use super::*;
use crate::micro::rng::Rng;

const TARGET_MS: f64 = 50.0;

/// How tokens come back.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Readback {
    /// This many milliseconds after the work is done.
    After(f64),
    /// At the next tick; ticks are this many milliseconds apart.
    Polled(f64),
}

impl Readback {
    /// So fast that single steps are best.
    fn is_fast(self) -> bool {
        let (Readback::After(ms) | Readback::Polled(ms)) = self;
        ms <= 2.5
    }
}

/// A device, its readback and an engine with a virtual clock.
struct Simulator {
    /// Milliseconds a step.
    t: f64,
    readback: Readback,
    /// Relative: 0.3 spreads times over 70 to 130 %.
    jitter: f64,
    rng: Rng,
    now: f64,
    device_free: f64,
    tick: f64,
    last_arrival: f64,
    /// Steps and arrival of the bursts in flight.
    in_flight: VecDeque<(usize, f64)>,
    flow: FlowControl,
}

/// What a stretch of tokens took.
#[derive(Debug, Default)]
struct Stretch {
    tokens: usize,
    ms: f64,
    arrivals: usize,
    /// Of the rung.
    changes: usize,
    /// Milliseconds of bursts of several steps that took more than the target.
    late_ms: f64,
}

impl Stretch {
    /// Tokens a millisecond.
    fn rate(&self) -> f64 {
        self.tokens as f64 / self.ms
    }

    fn spacing_ms(&self) -> f64 {
        self.ms / self.arrivals as f64
    }
}

impl Simulator {
    fn new(flow: FlowControl, t: f64, readback: Readback, jitter: f64, seed: u64) -> Self {
        let rng = Rng::new(seed, "flow");
        Simulator {
            t,
            readback,
            jitter,
            rng,
            now: 0.0,
            device_free: 0.0,
            tick: 0.0,
            last_arrival: 0.0,
            in_flight: VecDeque::new(),
            flow,
        }
    }

    fn spread(&mut self) -> f64 {
        1.0 + self.jitter * f64::from(self.rng.uniform(-1.0, 1.0))
    }

    fn submit(&mut self, steps: usize) {
        let done = self.now.max(self.device_free) + steps as f64 * self.t * self.spread();
        self.device_free = done;
        let arrival = match self.readback {
            Readback::After(r) => done + r * self.spread(),
            Readback::Polled(p) => {
                while self.tick < done {
                    self.tick += p * self.spread();
                }
                self.tick
            }
        };
        self.last_arrival = self.last_arrival.max(arrival);
        self.in_flight.push_back((steps, self.last_arrival));
        self.flow.submitted(self.now);
    }

    /// Draws `tokens` tokens or a few more.
    fn run(&mut self, tokens: usize) -> Stretch {
        self.run_while(|stretch| stretch.tokens < tokens)
    }

    /// An answer of `tokens` tokens after a prompt; gives its tokens a millisecond, the first one left out.
    fn generation(&mut self, tokens: usize) -> f64 {
        self.flow.begin();
        self.in_flight.clear();
        self.now += 10.0;
        (self.device_free, self.last_arrival) = (self.now, self.now);
        let (mut submitted, mut drawn, mut first_ms) = (0, 0, 0.0);
        while drawn < tokens {
            while self.in_flight.len() < self.flow.depth() && submitted < tokens {
                let steps = if submitted == 0 { 1 } else { self.flow.burst().min(tokens - submitted) };
                self.submit(steps);
                submitted += steps;
            }
            let (steps, arrival) = self.in_flight.pop_front().expect("a burst in flight");
            self.now = arrival;
            self.flow.arrived(steps, self.now);
            if drawn == 0 {
                first_ms = self.now;
            }
            drawn += steps;
        }
        // As an engine does where an answer ends, and where the next one starts.
        self.flow.begin();
        (tokens - 1) as f64 / (self.now - first_ms)
    }

    fn run_ms(&mut self, ms: f64) -> Stretch {
        self.run_while(|stretch| stretch.ms < ms)
    }

    fn run_while(&mut self, go_on: impl Fn(&Stretch) -> bool) -> Stretch {
        let mut stretch = Stretch::default();
        let start = self.now;
        while go_on(&stretch) {
            while self.in_flight.len() < self.flow.depth() {
                self.submit(self.flow.burst());
            }
            let (steps, arrival) = self.in_flight.pop_front().expect("a burst in flight");
            self.now = arrival;
            let before = self.flow.rung;
            self.flow.arrived(steps, self.now);
            stretch.changes += usize::from(self.flow.rung != before);
            stretch.tokens += steps;
            stretch.arrivals += 1;
            let burst_ms = steps as f64 * self.t;
            stretch.late_ms += if steps > 1 && burst_ms > TARGET_MS { burst_ms } else { 0.0 };
            stretch.ms = self.now - start;
        }
        stretch
    }
}

const STEP_MS: [f64; 6] = [0.5, 1.0, 2.0, 5.0, 20.0, 80.0];
const READBACK_MS: [f64; 5] = [0.1, 2.5, 10.0, 30.0, 100.0];
const JITTER: [f64; 3] = [0.0, 0.1, 0.3];
/// By then the controller has settled.
const CONVERGED_MS: f64 = 3000.0;

/// The best of the bursts that the target allows, at depth 4: tokens a millisecond.
fn best_fixed(t: f64, readback: Readback, jitter: f64, seed: u64) -> f64 {
    let longest = if readback.is_fast() { 1.0 } else { (TARGET_MS / t).clamp(1.0, 64.0) };
    let mut sim = Simulator::new(FlowControl::fixed(longest as usize, 4), t, readback, jitter, seed);
    sim.run(10_000).rate()
}

fn adaptive(t: f64, readback: Readback, jitter: f64, seed: u64) -> Simulator {
    Simulator::new(FlowControl::adaptive(TARGET_MS, 64, 4), t, readback, jitter, seed)
}

/// Every step time, readback and jitter, each with its index as the seed.
fn table() -> Vec<(f64, Readback, f64)> {
    let readbacks = READBACK_MS.map(Readback::After).into_iter().chain(READBACK_MS.map(Readback::Polled));
    let with_steps = readbacks.flat_map(|readback| STEP_MS.map(|t| (t, readback)));
    with_steps.flat_map(|(t, readback)| JITTER.map(|jitter| (t, readback, jitter))).collect()
}

#[test]
fn the_table_converges() {
    for (seed, (t, readback, jitter)) in table().into_iter().enumerate() {
        let what = format!("{readback:?}, {t} ms a step, jitter {jitter}");
        let best = best_fixed(t, readback, jitter, seed as u64);
        let mut sim = adaptive(t, readback, jitter, seed as u64);
        let mut first = sim.run(1000);
        let share = first.rate() / best;
        assert!(
            share > if readback.is_fast() { 0.9 } else { 0.18 },
            "{what}: {share} of the best, convergence included"
        );
        first.changes += sim.run_ms(CONVERGED_MS - sim.now).changes;
        let then = sim.run(5000);
        let (share, burst) = (then.rate() / best, sim.flow.burst());
        assert!(share > if jitter < 0.2 { 0.9 } else { 0.85 }, "{what}: {share} of the best");
        assert!(then.spacing_ms() < 1.05 * TARGET_MS.max(t), "{what}: arrivals every {} ms", then.spacing_ms());
        // Polls that are rarer than the target hide how long a burst takes.
        let is_hidden = matches!(readback, Readback::Polled(ms) if ms > TARGET_MS);
        let late = if jitter < 0.2 { 0.25 } else { 0.3 };
        assert!(is_hidden || then.late_ms < late * then.ms, "{what}: late for {} of {} ms", then.late_ms, then.ms);
        assert!(!readback.is_fast() || burst == 1, "{what}: bursts of {burst}");
        assert!(first.changes.max(then.changes) <= 40, "{what}: {} and {} changes", first.changes, then.changes);
    }
}

#[test]
fn a_changed_device_is_followed() {
    // Milliseconds a step and readback, before and after; the longest burst that is right after.
    let cases = [
        (1.0, Readback::After(0.1), 1.0, Readback::After(100.0), 50),
        (2.0, Readback::After(0.1), 2.0, Readback::Polled(100.0), 25),
        (2.0, Readback::After(100.0), 2.0, Readback::After(0.1), 1),
        (2.0, Readback::Polled(100.0), 2.0, Readback::After(2.5), 1),
        (1.0, Readback::After(100.0), 5.0, Readback::After(100.0), 10),
        (1.0, Readback::Polled(100.0), 20.0, Readback::Polled(100.0), 2),
        (5.0, Readback::Polled(100.0), 1.0, Readback::Polled(100.0), 50),
        (0.5, Readback::After(100.0), 80.0, Readback::After(0.1), 1),
    ];
    for jitter in [0.0, 0.1] {
        for (t, readback, later_t, later, longest) in cases {
            let what = format!("{readback:?} at {t} ms, then {later:?} at {later_t} ms, jitter {jitter}");
            let best = best_fixed(later_t, later, jitter, 1);
            let mut sim = adaptive(t, readback, jitter, 1);
            sim.run_ms(10_000.0);
            (sim.t, sim.readback) = (later_t, later);
            let meanwhile = sim.run_ms(10_000.0).rate() / best;
            assert!(meanwhile > 0.7, "{what}: {meanwhile} of the best in the first ten seconds");
            sim.run_ms(50_000.0);
            let settled = sim.run_ms(30_000.0);
            assert!(settled.rate() > 0.9 * best, "{what}: {} of {best}", settled.rate());
            assert!(sim.flow.burst() <= longest, "{what}: bursts of {}", sim.flow.burst());
            assert!(settled.late_ms < 0.1 * settled.ms, "{what}: late for {} ms", settled.late_ms);
        }
    }
}

#[test]
fn a_readback_slower_than_the_target_is_hidden_by_long_bursts() {
    for readback in [Readback::After(1000.0), Readback::Polled(1000.0)] {
        let mut sim = adaptive(1.0, readback, 0.0, 1);
        sim.run_ms(60_000.0);
        let rate = sim.run_ms(60_000.0).rate();
        assert!(rate > 0.15, "{readback:?}: {rate} tokens a millisecond, bursts of {}", sim.flow.burst());
    }
}

#[test]
fn the_first_generation_starts_with_one_awaited_step_and_later_ones_keep_what_was_learnt() {
    let mut sim = adaptive(5.0, Readback::Polled(100.0), 0.0, 1);
    assert_eq!((sim.flow.burst(), sim.flow.depth()), (1, 1));
    sim.run_ms(5000.0);
    let learnt = (sim.flow.burst(), sim.flow.depth());
    assert!(learnt.0 > 4, "{learnt:?}");
    for _ in 0..20 {
        sim.flow.begin();
        sim.in_flight.clear();
        assert_eq!((sim.flow.burst(), sim.flow.depth()), learnt);
        // A prompt that takes seconds is in no window.
        sim.now += 5000.0;
        sim.run(1);
        assert_eq!((sim.flow.burst(), sim.flow.depth()), learnt);
        sim.run(2 * learnt.0);
    }
    assert_eq!((sim.flow.burst(), sim.flow.depth()), learnt);
}

#[test]
fn a_fixed_choice_stays() {
    let mut sim = Simulator::new(FlowControl::fixed(7, 2), 1.0, Readback::After(100.0), 0.3, 1);
    assert_eq!((sim.flow.burst(), sim.flow.depth()), (7, 2));
    let changes = sim.run(5000).changes;
    assert_eq!((sim.flow.burst(), sim.flow.depth(), changes), (7, 2, 0));
}

#[test]
fn limits_hold() {
    assert_eq!(bursts(64), [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]);
    assert_eq!(bursts(5), [1, 2, 3, 4, 5]);
    assert_eq!((bursts(0), bursts(1)), (vec![1], vec![1]));
    for (capacity, max_depth) in [(1, 1), (1, 4), (5, 1), (5, 2), (20, 3), (7, 8)] {
        let flow = FlowControl::adaptive(TARGET_MS, capacity, max_depth);
        let mut sim = Simulator::new(flow, 0.5, Readback::After(100.0), 0.1, 1);
        for _ in 0..1000 {
            sim.run(1);
            let (burst, depth) = (sim.flow.burst(), sim.flow.depth());
            assert!((1..=capacity).contains(&burst) && (1..=max_depth).contains(&depth), "{burst} x {depth}");
        }
        assert_eq!((sim.flow.burst(), sim.flow.depth()), (capacity, max_depth));
    }
}

#[test]
fn arrivals_without_a_submit_are_ignored() {
    let mut flow = FlowControl::adaptive(TARGET_MS, 64, 4);
    flow.arrived(1, 5.0);
    assert_eq!((flow.burst(), flow.depth()), (1, 1));
}

/// A slow readback costs answers of ordinary length less than a tenth once a few of them have been given.
#[test]
fn answers_do_not_wait_for_a_slow_readback() {
    for readback in [Readback::After(100.0), Readback::Polled(100.0)] {
        for t in [1.0, 1.3, 1.6, 2.0, 5.0] {
            for seed in 0..10 {
                let mut sim = adaptive(t, readback, 0.05, seed);
                for _ in 0..3 {
                    sim.generation(512);
                }
                let mut rates: Vec<f64> = (0..9).map(|_| sim.generation(512)).collect();
                rates.sort_by(f64::total_cmp);
                let share = rates[4] * t;
                assert!(share > 0.9, "{readback:?}, {t} ms a step, seed {seed}: {share} of the rate without delay");
            }
        }
    }
}
