//! The shapes that cross the border as JSON; names are JavaScript's.

mod answer;
mod request;

pub(super) use answer::{Event, EventKind, Finish, Part, Piece};
pub(super) use request::{Generate, Load, Pooling, Prompt, Shape, ToolChoice};

use serde::{Serialize, de::DeserializeOwned};
use wasm_bindgen::JsValue;

use crate::engine::backend::Counters;
use crate::engine::{self, SchedulerCounters};
use crate::error::Error;

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
    parallel: usize,
    vocabulary_size: usize,
    fallback_reason: Option<String>,
}

impl Info {
    pub(super) fn new(info: &engine::Info, parallel: usize) -> Self {
        Self {
            name: info.name.clone(),
            architecture: info.architecture.clone(),
            parameters: info.parameters,
            backend: info.backend.clone(),
            adapter: info.adapter.clone(),
            exact: info.exact,
            context_length: info.n_ctx,
            parallel,
            vocabulary_size: info.n_vocab,
            fallback_reason: info.fallback_reason.clone(),
        }
    }
}

/// The names of the counters are the engine's; the package's worker turns them into JavaScript's.
#[derive(Serialize)]
pub(super) struct Stats {
    pub(super) device: Counters,
    pub(super) scheduler: Option<SchedulerCounters>,
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
