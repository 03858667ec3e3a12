//! Prefill and decode rates beside the device's floor: one measurement for the command line and the browser.

use serde::{Deserialize, Serialize};

use super::backend::Timing;
use super::policy::Policy;
use super::{Engine, Finish, Floor, GenerateOptions, Profile};
use crate::error::{Error, Result};

/// What to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BenchOptions {
    /// Tokens of the prompt whose prefill is measured, at least 1.
    pub pp: usize,
    /// Tokens decoded, at least 2.
    pub tg: usize,
    /// Tokens in the cache before decoding starts.
    pub depth: usize,
    /// Runs, at least 1; medians are reported.
    pub reps: usize,
    /// Steps a submit and submits in flight, as in [`Policy::of_flow`].
    #[serde(default)]
    pub burst: Option<usize>,
    /// See `burst`.
    #[serde(default)]
    pub in_flight: Option<usize>,
    /// Whether to tell where the time goes, too.
    #[serde(default)]
    pub profile: bool,
}

/// What was measured; rates are medians over the runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BenchReport {
    /// The model's name.
    pub model: String,
    /// `cpu` or `wgpu`.
    pub backend: String,
    /// The adapter's name, or the processor's instruction set.
    pub adapter: String,
    /// Whether the device gives the contract's bits.
    pub exact: bool,
    /// What was asked.
    #[serde(flatten)]
    pub options: BenchOptions,
    /// Prompt tokens a second, the first answer token included.
    pub prefill_tok_s: f64,
    /// Decoded tokens a second, the first one left out.
    pub decode_tok_s: f64,
    /// Dispatches a decoded token.
    pub dispatches_token: f64,
    /// Submits a decoded token.
    pub submits_token: f64,
    /// Steps of the longest burst and most submits in flight.
    pub longest_burst: usize,
    /// See `longest_burst`.
    pub deepest: usize,
    /// Milliseconds from submitting a burst to having its tokens: the median over the runs of their means.
    pub latency_ms: f64,
    /// Milliseconds the device was busy with the prompt and the first token; none where it cannot tell.
    pub gpu_ms_prefill: Option<f64>,
    /// Milliseconds the device was busy a decoded token; none where it cannot tell.
    pub gpu_ms_token: Option<f64>,
    /// Milliseconds a decoded token took in which the device did nothing.
    pub gap_ms_token: Option<f64>,
    /// Bytes of weights a decoded token reads.
    pub bytes_token: u64,
    /// The device at its best.
    pub floor: Floor,
    /// Milliseconds a token takes at least.
    pub floor_ms_token: f64,
    /// That over the milliseconds it took.
    pub fraction_of_floor: f64,
    /// Where the time goes, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
}

impl Engine {
    /// Measures the loaded model. The first run of each kind warms up and is not counted.
    ///
    /// # Errors
    /// [`Error::BadOption`] and [`Error::ContextFull`] for what cannot be measured, and what decoding reports.
    pub async fn bench(&mut self, options: BenchOptions) -> Result<BenchReport> {
        let BenchOptions { pp, tg, depth, reps, .. } = options;
        let policy = Policy::of_flow(options.burst, options.in_flight);
        policy.check()?;
        if pp < 1 || tg < 2 || reps < 1 {
            let found = format!("pp {pp}, tg {tg}, reps {reps}");
            return Err(Error::BadOption { option: "bench", found, expected: "pp and reps at least 1, tg at least 2" });
        }
        if depth + tg > self.info.n_ctx {
            return Err(Error::ContextFull { needed: depth + tg, limit: self.info.n_ctx });
        }
        let floor = self.measure_floor().await?;
        let prompt = some_ids(pp, self.info.n_vocab);
        let generate = |max_tokens| GenerateOptions { max_tokens, policy: Some(policy), ..Default::default() };
        let mut prefill = Vec::new();
        for _ in 0..=reps {
            let finish = self.run_timed(&prompt, &generate(1), Timing::Off).await?;
            prefill.push(pp as f64 / finish.timings.first_token_ms * 1e3);
        }
        let gpu_ms_prefill = self.run_timed(&prompt, &generate(1), Timing::Submits).await?.stats.prefill_busy_ms;
        let before = some_ids(depth.max(1), self.info.n_vocab);
        self.run_on(&before, &generate(tg), Timing::Off).await?;
        // The prompt is cached now, all but its last token: what is counted is decoding.
        let counted = self.counters();
        let (mut decode, mut latency) = (Vec::new(), Vec::new());
        let (mut longest_burst, mut deepest) = (0, 0);
        for _ in 0..reps {
            let Finish { timings, stats, .. } = self.run_on(&before, &generate(tg), Timing::Off).await?;
            decode.push(timings.decode_tokens as f64 / timings.decode_ms * 1e3);
            latency.push(stats.latency_ms);
            longest_burst = longest_burst.max(stats.longest_burst);
            deepest = deepest.max(stats.deepest);
        }
        let counters = self.counters() - counted;
        let (gpu_ms_token, gap_ms_token) = busy(&self.run_on(&before, &generate(tg), Timing::Submits).await?);
        let tokens = (reps * tg) as f64;
        let decode_tok_s = median(&mut decode);
        let dispatches_token = (counters.dispatches as f64 / tokens).round();
        let floor_ms_token = floor.milliseconds(self.info.bytes_per_token, dispatches_token);
        let profile = match options.profile {
            true => Some(self.profile_answer(&prompt, generate(tg)).await?),
            false => None,
        };
        Ok(BenchReport {
            model: self.info.name.clone(),
            backend: self.info.backend.clone(),
            adapter: self.info.adapter.clone(),
            exact: self.info.exact,
            options,
            prefill_tok_s: median(&mut prefill[1..]),
            decode_tok_s,
            dispatches_token,
            submits_token: counters.submits as f64 / tokens,
            longest_burst,
            deepest,
            latency_ms: median(&mut latency),
            gpu_ms_prefill,
            gpu_ms_token,
            gap_ms_token,
            bytes_token: self.info.bytes_per_token,
            floor,
            floor_ms_token,
            fraction_of_floor: floor_ms_token * decode_tok_s / 1e3,
            profile,
        })
    }
}

/// Milliseconds a token of an answer in which the device was busy, and in which it was not.
fn busy(finish: &Finish) -> (Option<f64>, Option<f64>) {
    let tokens = finish.timings.decode_tokens as f64;
    let busy = finish.stats.decode_busy_ms.map(|ms| ms / tokens);
    (busy, busy.map(|busy| finish.timings.decode_ms / tokens - busy))
}

/// Ids spread over the vocabulary, the same on every run.
pub(super) fn some_ids(n: usize, n_vocab: usize) -> Vec<u32> {
    let spread = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) % n_vocab as u64;
    (0..n as u64).map(|i| spread(i) as u32).collect()
}

pub(super) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
