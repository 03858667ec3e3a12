//! What a step of several sequences costs: one measurement for the command line and the browser.

use serde::Serialize;

use super::{EventKind, Request, Scheduler, SchedulerOptions};
use crate::engine::bench::{median, some_ids};
use crate::engine::clock::now_ms;
use crate::engine::{Engine, GenerateOptions};
use crate::error::{Error, Result};

/// What to measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchBenchOptions {
    /// Numbers of sequences, each at least 1 and at most the engine's slots.
    pub sizes: Vec<usize>,
    /// Tokens decoded a sequence while all of them draw, at least 2.
    pub tg: usize,
    /// Tokens in each sequence's cache before decoding starts; 0 counts as 1.
    pub depth: usize,
    /// Runs, at least 1; medians are reported.
    pub reps: usize,
    /// How steps are divided.
    pub scheduler: SchedulerOptions,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BatchBenchReport {
    /// The model's name.
    pub model: String,
    /// `cpu` or `wgpu`.
    pub backend: String,
    /// The adapter's name, or the processor's instruction set.
    pub adapter: String,
    /// Whether the device gives the contract's bits.
    pub exact: bool,
    /// Tokens decoded a sequence.
    pub tg: usize,
    /// Tokens in each cache before.
    pub depth: usize,
    /// Bytes of weights a step reads, for all its rows together.
    pub bytes_step: u64,
    /// By number of sequences.
    pub rows: Vec<BatchBenchRow>,
}

/// Steps of one number of sequences.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BatchBenchRow {
    /// Sequences.
    pub sequences: usize,
    /// Tokens a second, all sequences together.
    pub tok_s: f64,
    /// Tokens a second of each.
    pub each_tok_s: f64,
    /// Milliseconds of a step.
    pub step_ms: f64,
    /// That over the first row's.
    pub against_one: f64,
    /// Dispatches a step.
    pub dispatches_step: f64,
    /// Milliseconds that reading the weights once and the dispatches take at least.
    pub floor_ms: f64,
}

/// Measures an engine's steps by number of sequences. The first run of each number warms up and is not counted.
///
/// # Errors
/// [`Error::BadOption`] for what cannot be measured, and what decoding reports.
pub async fn bench_batches(engine: Engine, options: BatchBenchOptions) -> Result<BatchBenchReport> {
    let BatchBenchOptions { sizes, tg, depth, reps, scheduler } = options;
    let slots = engine.slots();
    if tg < 2 || reps < 1 || sizes.is_empty() || sizes.iter().any(|n| !(1..=slots).contains(n)) {
        let found = format!("tg {tg}, reps {reps}, sizes {sizes:?} of {slots} slots");
        let expected = "tg at least 2, reps at least 1, sizes from 1 to the slots";
        return Err(Error::BadOption { option: "bench", found, expected });
    }
    let floor = engine.measure_floor().await?;
    let info = engine.info().clone();
    let mut scheduler = Scheduler::new(engine, scheduler)?;
    let mut rows: Vec<BatchBenchRow> = Vec::new();
    for sequences in sizes {
        let (mut rates, mut dispatches) = (Vec::new(), 0.0);
        for run in 0..=reps {
            let measured = scheduler.decode_rate(sequences, tg, depth, run).await?;
            if run > 0 {
                rates.push(measured.tok_s);
                dispatches = measured.dispatches_step;
            }
        }
        let tok_s = median(&mut rates);
        let step_ms = sequences as f64 / tok_s * 1e3;
        rows.push(BatchBenchRow {
            sequences,
            tok_s,
            each_tok_s: tok_s / sequences as f64,
            step_ms,
            against_one: step_ms / rows.first().map_or(step_ms, |one| one.step_ms),
            dispatches_step: dispatches,
            floor_ms: floor.milliseconds(info.bytes_per_token, dispatches),
        });
    }
    Ok(BatchBenchReport {
        model: info.name,
        backend: info.backend,
        adapter: info.adapter,
        exact: info.exact,
        tg,
        depth,
        bytes_step: info.bytes_per_token,
        rows,
    })
}

struct Measured {
    tok_s: f64,
    dispatches_step: f64,
}

impl Scheduler {
    /// Decodes `n` sequences with prompts of their own. One joins a step, so they decode `n` tokens more. The clock runs from when all of them draw
    /// to when the first has ended.
    async fn decode_rate(&mut self, n: usize, tg: usize, depth: usize, run: usize) -> Result<Measured> {
        let n_vocab = self.engine.info.n_vocab;
        let depth = depth.max(1);
        let ids = some_ids(depth * n + run, n_vocab);
        for at in 0..n {
            let options = GenerateOptions { max_tokens: tg + n, ignore_eos: true, ..Default::default() };
            self.submit(Request::new(&ids[run + at * depth..][..depth], options))?;
        }
        let mut begun = vec![false; n];
        let (mut drawn, mut start, mut end) = (0, None, None);
        let first = self.engine.requests + 1 - n as u64;
        let mut before = self.engine.counters();
        let mut after = before;
        while !self.is_idle() {
            for event in self.step().await? {
                match event.kind {
                    EventKind::Piece(piece) if start.is_some() && end.is_none() => drawn += piece.ids.len(),
                    EventKind::Piece(_) => begun[(event.request.0 - first) as usize] = true,
                    EventKind::Finished(_) if end.is_none() => (end, after) = (Some(now_ms()), self.engine.counters()),
                    EventKind::Failed(error) => return Err(error),
                    _ => {}
                }
            }
            if start.is_none() && begun.iter().all(|begun| *begun) {
                (start, before) = (Some(now_ms()), self.engine.counters());
            }
        }
        let (Some(start), Some(end)) = (start, end) else {
            return Err(Error::Device { reason: "sequences ended before all of them drew; decode more tokens".into() });
        };
        let steps = drawn as f64 / n as f64;
        Ok(Measured {
            tok_s: drawn as f64 / (end - start) * 1e3,
            dispatches_step: ((after - before).dispatches as f64 / steps).round(),
        })
    }
}
