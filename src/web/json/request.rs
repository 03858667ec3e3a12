//! What is asked for.

use serde::Deserialize;

use crate::chat::Message;
use crate::engine::{self, BackendChoice, GenerateOptions, Policy};
use crate::plan::KvType;
use crate::sample::Sampling;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::web) struct Load {
    pub(in crate::web) backend: Backend,
    pub(in crate::web) context_length: Option<usize>,
    pub(in crate::web) parallel: usize,
    pub(in crate::web) cache_bytes: Option<u64>,
    pub(in crate::web) kv: Kv,
}

#[derive(Deserialize)]
pub(in crate::web) enum Kv {
    #[serde(rename = "f16")]
    F16,
    #[serde(rename = "q8_0")]
    Q8_0,
}

impl From<Kv> for KvType {
    fn from(kv: Kv) -> Self {
        match kv {
            Kv::F16 => Self::F16,
            Kv::Q8_0 => Self::Q8_0,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::web) enum Backend {
    Auto,
    Cpu,
    Wgpu,
}

impl From<Backend> for BackendChoice {
    fn from(backend: Backend) -> Self {
        match backend {
            Backend::Auto => Self::Auto,
            Backend::Cpu => Self::Cpu,
            Backend::Wgpu => Self::Gpu,
        }
    }
}

/// Messages, or the text to go on from.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::web) struct Prompt {
    pub(in crate::web) messages: Option<Vec<Message>>,
    #[serde(default)]
    pub(in crate::web) text: String,
    #[serde(default)]
    pub(in crate::web) tools: Vec<serde_json::Value>,
    #[serde(default)]
    pub(in crate::web) tool_choice: ToolChoice,
}

#[derive(Deserialize, Default, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(in crate::web) enum ToolChoice {
    #[default]
    Auto,
    None,
    Required,
    /// The one to call.
    Name(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::web) enum Pooling {
    Last,
    Mean,
}

impl From<Pooling> for engine::Pooling {
    fn from(pooling: Pooling) -> Self {
        match pooling {
            Pooling::Last => Self::Last,
            Pooling::Mean => Self::Mean,
        }
    }
}

/// What an answer has to look like.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::web) enum Shape {
    JsonObject,
    JsonSchema(serde_json::Value),
    Regex(String),
    Lark(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::web) struct Generate {
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
    pub(in crate::web) shape: Option<Shape>,
    burst: Option<usize>,
    in_flight: Option<usize>,
}

impl Generate {
    /// How to decode, where the engine has one sequence.
    pub(in crate::web) fn policy(&self) -> Policy {
        Policy::of_flow(self.burst, self.in_flight)
    }
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
            ..Self::default()
        }
    }
}
