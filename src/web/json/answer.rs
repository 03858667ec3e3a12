//! What comes back.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::chat::tools::Answer;
use crate::chat::{self, Message};
use crate::engine::{self, RequestId, StopReason};
use crate::sample::Logprobs;

/// Something that happened to a request.
#[derive(Serialize)]
pub(in crate::web) struct Event {
    pub(in crate::web) request: RequestId,
    #[serde(flatten)]
    pub(in crate::web) kind: EventKind,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::web) enum EventKind {
    Piece(Piece),
    Finish(Box<Finish>),
    Embedding(Vec<f32>),
    Score(f32),
    Error { code: String, message: String },
}

#[derive(Serialize)]
pub(in crate::web) struct Piece {
    ids: Vec<u32>,
    text: String,
    parts: Vec<Part>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    logprobs: Vec<TokenLogprobs>,
}

impl Piece {
    pub(in crate::web) fn new(piece: engine::Piece, parts: Vec<Part>) -> Self {
        let of = |l: Logprobs| TokenLogprobs { logprob: l.chosen.is_finite().then_some(l.chosen), top: l.top };
        let logprobs = piece.logprobs.into_iter().map(of).collect();
        Self { ids: piece.ids, text: piece.text, parts, logprobs }
    }
}

/// A probability of 0 has no finite logarithm: `null`.
#[derive(Serialize)]
struct TokenLogprobs {
    logprob: Option<f32>,
    top: Vec<(u32, f32)>,
}

/// A part of an answer.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub(in crate::web) enum Part {
    Content { text: String },
    Reasoning { text: String },
    ToolCall { call: ToolCall },
    Problem { problem: String },
}

#[derive(Serialize)]
pub(in crate::web) struct ToolCall {
    id: String,
    name: String,
    arguments: Map<String, Value>,
}

impl From<&chat::ToolCall> for ToolCall {
    fn from(call: &chat::ToolCall) -> Self {
        Self { id: call.id.clone(), name: call.name.clone(), arguments: call.arguments.clone() }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::web) struct Finish {
    stop_reason: StopReason,
    timings: Timings,
    stats: Option<Stats>,
    fallback: Option<String>,
    content: String,
    reasoning: String,
    tool_calls: Vec<ToolCall>,
    problems: Vec<String>,
    message: Message,
}

impl Finish {
    fn new(stop_reason: StopReason, timings: &engine::Timings, answer: &Answer) -> Self {
        Self {
            stop_reason,
            timings: timings.into(),
            stats: None,
            fallback: None,
            content: answer.content.clone(),
            reasoning: answer.reasoning.clone(),
            tool_calls: answer.tool_calls.iter().map(ToolCall::from).collect(),
            problems: answer.problems.iter().map(ToString::to_string).collect(),
            message: answer.message(),
        }
    }

    /// The end of an answer that had the engine for itself.
    pub(in crate::web) fn alone(finish: &engine::Finish, answer: &Answer) -> Self {
        let draw = |draw| format!("the device drew an id that cannot be: {draw:?}");
        Self {
            stats: Some((&finish.stats).into()),
            fallback: finish.invalid_draw.map(draw),
            ..Self::new(finish.stop_reason, &finish.timings, answer)
        }
    }

    /// The end of an answer that shared its steps.
    pub(in crate::web) fn together(completion: &engine::Completion, answer: &Answer) -> Self {
        Self::new(completion.stop_reason, &completion.timings, answer)
    }
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

impl From<&engine::Timings> for Timings {
    fn from(t: &engine::Timings) -> Self {
        Self {
            prompt_tokens: t.prompt_tokens,
            cached_tokens: t.cached_tokens,
            prefill_ms: t.prefill_ms,
            first_token_ms: t.first_token_ms,
            decode_tokens: t.decode_tokens,
            decode_ms: t.decode_ms,
        }
    }
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

impl From<&engine::Stats> for Stats {
    fn from(s: &engine::Stats) -> Self {
        Self {
            bursts: s.bursts,
            overlapped_bursts: s.overlapped_bursts,
            longest_burst: s.longest_burst,
            deepest: s.deepest,
            discarded_steps: s.discarded_steps,
            record_ms: s.record_ms,
            readback_wait_ms: s.readback_wait_ms,
            latency_ms: s.latency_ms,
        }
    }
}
