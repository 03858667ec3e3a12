//! The shapes that cross the border as JSON; names are JavaScript's.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use wasm_bindgen::JsValue;

use crate::chat::Message;
use crate::engine::{self, BackendChoice, GenerateOptions, Policy, StopReason};
use crate::error::Error;
use crate::sample::{Logprobs, Sampling};

use super::error::to_js;

/// Reads options written by the package's worker.
pub(super) fn read<T: DeserializeOwned>(text: &str) -> Result<T, JsValue> {
    let bad = |e: serde_json::Error| Error::BadOption {
        option: "options",
        found: e.to_string(),
        expected: "the JSON that the package writes",
    };
    serde_json::from_str(text).map_err(|e| to_js(bad(e)))
}

/// Writes a result; these shapes have text keys and finite numbers only, which always can be written.
pub(super) fn write(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Load {
    pub(super) backend: Backend,
    pub(super) context_length: Option<usize>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Backend {
    Auto,
    Cpu,
    Wgpu,
}

impl From<Backend> for BackendChoice {
    fn from(backend: Backend) -> Self {
        match backend {
            Backend::Auto => Self::Auto,
            Backend::Cpu => Self::Cpu,
            Backend::Wgpu => Self::Wgpu,
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Prompt {
    Chat { messages: Vec<Message> },
    Raw { text: String },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Generate {
    max_tokens: usize,
    temperature: f32,
    seed: u64,
    top_k: u32,
    top_p: f32,
    min_p: f32,
    typical_p: f32,
    repeat_penalty: f32,
    frequency_penalty: f32,
    presence_penalty: f32,
    penalty_window: usize,
    logit_bias: Vec<(u32, f32)>,
    suppress: Vec<u32>,
    stop: Vec<String>,
    stop_ids: Vec<u32>,
    logprobs: Option<usize>,
    burst: Option<usize>,
    in_flight: Option<usize>,
}

impl From<Generate> for GenerateOptions {
    fn from(o: Generate) -> Self {
        let sampling = Sampling {
            temperature: o.temperature,
            seed: o.seed,
            top_k: o.top_k,
            top_p: o.top_p,
            min_p: o.min_p,
            typical_p: o.typical_p,
            repeat_penalty: o.repeat_penalty,
            frequency_penalty: o.frequency_penalty,
            presence_penalty: o.presence_penalty,
            penalty_window: o.penalty_window,
            biases: o.logit_bias,
        };
        Self {
            max_tokens: o.max_tokens,
            sampling: sampling.suppressing(&o.suppress),
            stop: o.stop,
            stop_ids: o.stop_ids,
            logprobs: o.logprobs,
            policy: Some(Policy::of_flow(o.burst, o.in_flight)),
            ..Self::default()
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Info {
    name: String,
    architecture: String,
    parameters: u64,
    backend: String,
    adapter: String,
    exact: bool,
    context_length: usize,
    vocabulary_size: usize,
    fallback_reason: Option<String>,
}

impl From<&engine::Info> for Info {
    fn from(info: &engine::Info) -> Self {
        Self {
            name: info.name.clone(),
            architecture: info.architecture.clone(),
            parameters: info.parameters,
            backend: info.backend.clone(),
            adapter: info.adapter.clone(),
            exact: info.exact,
            context_length: info.n_ctx,
            vocabulary_size: info.n_vocab,
            fallback_reason: info.fallback_reason.clone(),
        }
    }
}

#[derive(Serialize)]
pub(super) struct Piece<'a> {
    ids: &'a [u32],
    text: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    logprobs: Vec<TokenLogprobs<'a>>,
}

/// A probability of 0 has no finite logarithm: `null`.
#[derive(Serialize)]
struct TokenLogprobs<'a> {
    logprob: Option<f32>,
    top: &'a [(u32, f32)],
}

impl<'a> From<&'a engine::Piece> for Piece<'a> {
    fn from(piece: &'a engine::Piece) -> Self {
        let of = |l: &'a Logprobs| TokenLogprobs { logprob: l.chosen.is_finite().then_some(l.chosen), top: &l.top };
        Self { ids: &piece.ids, text: &piece.text, logprobs: piece.logprobs.iter().map(of).collect() }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Finish {
    stop_reason: StopReason,
    timings: Timings,
    stats: Stats,
    fallback: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Timings {
    prompt_tokens: usize,
    cached_tokens: usize,
    prefill_ms: f64,
    first_token_ms: f64,
    decode_tokens: usize,
    decode_ms: f64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Stats {
    bursts: u64,
    overlapped_bursts: u64,
    longest_burst: usize,
    deepest: usize,
    discarded_steps: u64,
    record_ms: f64,
    readback_wait_ms: f64,
    latency_ms: f64,
}

impl From<&engine::Finish> for Finish {
    fn from(finish: &engine::Finish) -> Self {
        let (t, s) = (&finish.timings, &finish.stats);
        Self {
            stop_reason: finish.stop_reason,
            timings: Timings {
                prompt_tokens: t.prompt_tokens,
                cached_tokens: t.cached_tokens,
                prefill_ms: t.prefill_ms,
                first_token_ms: t.first_token_ms,
                decode_tokens: t.decode_tokens,
                decode_ms: t.decode_ms,
            },
            stats: Stats {
                bursts: s.bursts,
                overlapped_bursts: s.overlapped_bursts,
                longest_burst: s.longest_burst,
                deepest: s.deepest,
                discarded_steps: s.discarded_steps,
                record_ms: s.record_ms,
                readback_wait_ms: s.readback_wait_ms,
                latency_ms: s.latency_ms,
            },
            fallback: finish.invalid_draw.map(|draw| format!("the device drew an id that cannot be: {draw:?}")),
        }
    }
}

#[derive(Serialize)]
pub(super) struct Shader {
    pub(super) name: String,
    pub(super) source: String,
}

#[derive(Serialize)]
pub(super) struct CaseReport {
    pub(super) cases: usize,
    pub(super) failures: Vec<String>,
}
