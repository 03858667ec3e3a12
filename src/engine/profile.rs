//! The report of a profile: time by phase, by operation, by layer.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

pub use super::ledger::Phase;
use super::ledger::{Ledger, Sum};
use crate::plan::Tag;

/// How operations were timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// By the device's timestamps around each.
    Timestamps,
    /// By the wall clock around many repetitions of each, where timestamps are missing or rounded.
    Batches,
    /// By the clock of the processor that computes them.
    Clock,
}

/// Where the time of a generation went.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Profile {
    /// How operations were timed.
    pub method: Method,
    /// Tokens decoded after the first.
    pub tokens: u64,
    /// Milliseconds the device was busy with the same work untimed; none where that was not measured.
    pub gpu_ms: Option<f64>,
    /// Microseconds that timing an operation adds to it, measured on empty ones; they are taken off all times.
    pub timing_us: f64,
    /// Milliseconds of all operations together.
    pub sum_of_ops_ms: f64,
    /// `sum_of_ops_ms` over `gpu_ms` of the phases that have both.
    pub ratio: Option<f64>,
    /// By phase.
    pub phases: Vec<PhaseTime>,
    /// By operation, those of a phase together, the longest first.
    pub kernels: Vec<OpTime>,
    /// By operation with format, shape and role, in the same order.
    pub ops: Vec<OpTime>,
    /// By layer.
    pub layers: Vec<LayerTime>,
}

/// Time of a phase.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PhaseTime {
    /// Which.
    pub phase: Phase,
    /// Tokens fed (prefill) or drawn (decode).
    pub tokens: u64,
    /// Milliseconds the device was busy, where that was measured.
    pub gpu_ms: Option<f64>,
    /// Milliseconds of its operations together; none where they were not timed.
    pub sum_of_ops_ms: Option<f64>,
    /// The latter over the former.
    pub ratio: Option<f64>,
}

/// Time of the operations of one label.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OpTime {
    /// The phase they ran in.
    pub phase: Phase,
    /// Stem, for example `matmul`.
    pub op: String,
    /// What they are called: the stem, or the stem with format, shape and role.
    pub label: String,
    /// How many ran.
    pub count: u64,
    /// Milliseconds of all of them.
    pub total_ms: f64,
    /// Microseconds of one.
    pub mean_us: f64,
    /// Their part of the phase's operations, 0 to 1.
    pub share: f64,
    /// Bytes of weights that all of them read: decoding matmuls.
    pub bytes: Option<u64>,
    /// Gigabytes of weights a second.
    pub gb_s: Option<f64>,
}

/// Time of a layer's operations.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LayerTime {
    /// The phase they ran in.
    pub phase: Phase,
    /// Which layer.
    pub layer: usize,
    /// How many operations ran.
    pub count: u64,
    /// Milliseconds of all of them.
    pub total_ms: f64,
    /// Their part of the phase's operations, 0 to 1.
    pub share: f64,
}

impl Profile {
    /// The report of timed steps, each of which took `timing_us` longer for being timed. `whole` has the same work with its submits timed,
    /// where that was done.
    pub(crate) fn new(method: Method, mut steps: Ledger, timing_us: f64, whole: Option<&Ledger>) -> Self {
        steps.subtract(timing_us / 1e3);
        let steps = &steps;
        let phases: Vec<_> = Phase::ALL.iter().filter_map(|phase| phase_time(*phase, steps, whole)).collect();
        let both = phases.iter().filter_map(|phase| Some((phase.sum_of_ops_ms?, phase.gpu_ms?)));
        let (timed, busy) = both.fold((0.0, 0.0), |(timed, busy), (ops, gpu)| (timed + ops, busy + gpu));
        let gpu_ms: Vec<f64> = phases.iter().filter_map(|phase| phase.gpu_ms).collect();
        Profile {
            method,
            tokens: steps.tokens(Phase::Decode),
            timing_us,
            gpu_ms: (!gpu_ms.is_empty()).then(|| gpu_ms.iter().sum()),
            sum_of_ops_ms: phases.iter().filter_map(|phase| phase.sum_of_ops_ms).sum(),
            ratio: (busy > 0.0).then(|| timed / busy),
            kernels: op_times(steps, |tag| tag.op.to_owned()),
            ops: op_times(steps, Tag::label),
            layers: layer_times(steps),
            phases,
        }
    }

    /// Milliseconds of a phase's operations.
    fn phase_ms(steps: &Ledger, of: Phase) -> f64 {
        steps.steps().filter(|(phase, ..)| *phase == of).map(|(_, _, sum)| sum.ms).sum()
    }
}

fn phase_time(phase: Phase, steps: &Ledger, whole: Option<&Ledger>) -> Option<PhaseTime> {
    let timed = steps.steps().any(|(p, ..)| p == phase);
    let sum_of_ops_ms = timed.then(|| Profile::phase_ms(steps, phase));
    let gpu_ms = whole.and_then(|whole| whole.busy_ms(phase));
    let ratio = sum_of_ops_ms.zip(gpu_ms).filter(|(_, gpu)| *gpu > 0.0).map(|(ops, gpu)| ops / gpu);
    let tokens = steps.tokens(phase).max(whole.map_or(0, |whole| whole.tokens(phase)));
    (timed || gpu_ms.is_some()).then_some(PhaseTime { phase, tokens, gpu_ms, sum_of_ops_ms, ratio })
}

/// Steps of the same phase and label together.
fn op_times(steps: &Ledger, label: impl Fn(&Tag) -> String) -> Vec<OpTime> {
    let mut sums: BTreeMap<(Phase, String), (&'static str, Sum, u64)> = BTreeMap::new();
    for (phase, tag, sum) in steps.steps() {
        let entry = sums.entry((phase, label(tag))).or_insert((tag.op, Sum::default(), 0));
        entry.1.add(sum);
        entry.2 += tag.bytes * sum.count;
    }
    let mut times: Vec<_> = sums
        .into_iter()
        .map(|((phase, label), (op, sum, bytes))| {
            // A row of a prefill chunk shares the weights with others; only decoding reads them once a token.
            let bytes = (phase == Phase::Decode && bytes > 0).then_some(bytes);
            OpTime {
                phase,
                op: op.into(),
                label,
                count: sum.count,
                total_ms: sum.ms,
                mean_us: sum.ms * 1e3 / sum.count.max(1) as f64,
                share: share(sum.ms, Profile::phase_ms(steps, phase)),
                bytes,
                gb_s: bytes.filter(|_| sum.ms > 0.0).map(|bytes| bytes as f64 / sum.ms / 1e6),
            }
        })
        .collect();
    times.sort_by(|a, b| a.phase.cmp(&b.phase).then(b.total_ms.total_cmp(&a.total_ms)));
    times
}

fn layer_times(steps: &Ledger) -> Vec<LayerTime> {
    let mut sums: BTreeMap<(Phase, usize), Sum> = BTreeMap::new();
    for (phase, tag, sum) in steps.steps() {
        if let Some(layer) = tag.layer {
            sums.entry((phase, layer)).or_default().add(sum);
        }
    }
    let time = |((phase, layer), sum): ((Phase, usize), Sum)| {
        let share = share(sum.ms, Profile::phase_ms(steps, phase));
        LayerTime { phase, layer, count: sum.count, total_ms: sum.ms, share }
    };
    sums.into_iter().map(time).collect()
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Method::Timestamps => "timestamps of the device",
            Method::Batches => "batches of one operation",
            Method::Clock => "the clock",
        })
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Phase::Prefill => "prefill",
            Phase::Decode => "decode",
        })
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "profile by {}", self.method)?;
        if self.timing_us > 0.0 {
            write!(f, "; {:.2} µs taken off each operation for timing it", self.timing_us)?;
        }
        writeln!(f)?;
        for phase in &self.phases {
            self.fmt_phase(f, phase)?;
        }
        Ok(())
    }
}

impl Profile {
    fn fmt_phase(&self, f: &mut fmt::Formatter<'_>, phase: &PhaseTime) -> fmt::Result {
        write!(f, "\n{}: {} tokens", phase.phase, phase.tokens)?;
        if let Some(ms) = phase.gpu_ms {
            write!(f, ", busy for {ms:.2} ms")?;
        }
        if let Some(ms) = phase.sum_of_ops_ms {
            write!(f, ", operations take {ms:.2} ms together")?;
        }
        if let Some(ratio) = phase.ratio {
            write!(f, " ({:.1} %)", ratio * 100.0)?;
        }
        writeln!(f)?;
        let ops = || self.ops.iter().filter(|op| op.phase == phase.phase);
        let width = ops().map(|op| op.label.len()).max().unwrap_or(0);
        if width > 0 {
            writeln!(f, "{:width$} {:>8} {:>10} {:>10} {:>7} {:>8}", "", "count", "ms", "mean µs", "share", "GB/s")?;
        }
        for op in ops() {
            let rate = op.gb_s.map_or_else(String::new, |rate| format!("{rate:.1}"));
            let OpTime { label, count, total_ms, mean_us, share, .. } = op;
            let share = share * 100.0;
            writeln!(f, "{label:width$} {count:>8} {total_ms:>10.3} {mean_us:>10.2} {share:>6.1}% {rate:>8}")?;
        }
        let layers = || self.layers.iter().filter(|layer| layer.phase == phase.phase);
        let by_time = |a: &&LayerTime, b: &&LayerTime| a.total_ms.total_cmp(&b.total_ms);
        if let (Some(fastest), Some(slowest)) = (layers().min_by(by_time), layers().max_by(by_time)) {
            let n = layers().count();
            let share = layers().map(|layer| layer.share).sum::<f64>() * 100.0;
            let [fast, slow] = [fastest, slowest].map(|l| format!("{} takes {:.3} ms", l.layer, l.total_ms));
            writeln!(f, "{n} layers, {share:.1} % of it: layer {fast}, layer {slow}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn ledgers() -> (Ledger, Ledger) {
        let matmul = |layer| {
            let tag = Tag { layer: Some(layer), bytes: 1000, ..Tag::of("matmul", "ffn_up q4_0 64x32") };
            Arc::new(tag)
        };
        let (mut steps, mut whole) = (Ledger::default(), Ledger::default());
        for layer in 0..2 {
            steps.add_steps(Phase::Prefill, &matmul(layer), Sum { count: 1, ms: 2.0 });
            steps.add_steps(Phase::Decode, &matmul(layer), Sum { count: 5, ms: 1.5 });
        }
        steps.add_steps(Phase::Decode, &Arc::new(Tag::of("sample", "64")), Sum { count: 5, ms: 1.0 });
        steps.add_tokens(Phase::Decode, 5);
        whole.add_submit(Phase::Decode, 3.2);
        (steps, whole)
    }

    #[test]
    fn sums_are_by_phase_label_and_layer() {
        let (steps, whole) = ledgers();
        let profile = Profile::new(Method::Timestamps, steps, 0.0, Some(&whole));
        assert_eq!((profile.tokens, profile.sum_of_ops_ms), (5, 8.0));
        assert_eq!((profile.gpu_ms, profile.ratio), (Some(3.2), Some(4.0 / 3.2)));
        let ops: Vec<_> = profile.ops.iter().map(|op| (op.phase, op.label.as_str(), op.count, op.total_ms)).collect();
        let label = "matmul ffn_up q4_0 64x32";
        let expected =
            [(Phase::Prefill, label, 2, 4.0), (Phase::Decode, label, 10, 3.0), (Phase::Decode, "sample 64", 5, 1.0)];
        assert_eq!(ops, expected);
        assert_eq!(profile.ops.iter().map(|op| op.share).collect::<Vec<_>>(), [1.0, 0.75, 0.25]);
        assert_eq!((profile.ops[0].bytes, profile.ops[1].bytes), (None, Some(10_000)));
        assert_eq!(profile.kernels[1].label, "matmul");
        assert_eq!(profile.layers.len(), 4);
    }

    #[test]
    fn the_table_has_a_line_an_operation() {
        let (steps, whole) = ledgers();
        let table = Profile::new(Method::Batches, steps, 0.0, Some(&whole)).to_string();
        assert_eq!(table.lines().filter(|line| line.starts_with("matmul ffn_up q4_0 64x32 ")).count(), 2, "{table}");
        assert!(table.contains("batches"), "{table}");
    }
}
