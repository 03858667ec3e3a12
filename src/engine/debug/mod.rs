//! Finds the first operation whose bits differ between a device and the cpu backend.
//!
//! Both run the same tokens: each chunk of a prompt, then a decode step, first as a whole and then operation by operation. What an
//! operation wrote is compared before the next one runs, so everything it read was equal: the first difference names the culprit. Only
//! one operation's output is held at a time.

mod compare;
mod lockstep;
mod report;

pub use report::{DebugReport, Difference, LayerSummary, Phase, PhaseKind, TOGETHER, Value};

use std::sync::Arc;

use lockstep::{Pair, Run};

use super::backend::WeightSink;
use super::load::{context_size, model_name};
use crate::chat::{ChatTemplate, Message, RenderOptions};
use crate::cpu::backend::{CpuBackend, CpuWeights};
use crate::error::{Error, Result};
use crate::gguf::GgufFile;
use crate::gpu::{Gpu, GpuBackend, GpuWeights};
use crate::model::Model;
use crate::model::load::{CancelToken, ProgressFn, load_weights};
use crate::model::weights::WeightDesc;
use crate::plan::{KvType, WeightId};
use crate::quant::{PlaneLayout, Planes};
use crate::tokenizer::Tokenizer;

/// What is fed.
#[derive(Debug, Clone)]
pub enum DebugPrompt {
    /// Token ids.
    Ids(Vec<u32>),
    /// A text as it is.
    Raw(String),
    /// A conversation, rendered by the file's template.
    Chat(Vec<Message>),
}

/// What is traced.
#[derive(Default)]
pub struct DebugOptions {
    /// Tokens the cache holds; by default as [`super::LoadOptions::n_ctx`].
    pub n_ctx: Option<usize>,
    /// What keys and values are stored as.
    pub kv: KvType,
    /// The first position that is traced; those before it run as a whole and are traced only where their results differ. Past the
    /// prompt the likeliest tokens are decoded up to it.
    pub from: usize,
    /// Called as tensors arrive.
    pub progress: Option<Box<ProgressFn<'static>>>,
}

/// Runs a model on `gpu` and on the cpu in lock step: the prompt, then one decode step, with the sampler after each.
///
/// # Errors
/// Whatever is wrong with the file, the device or the prompt; a difference is a result, not an error.
pub async fn find_difference(
    file: &GgufFile,
    gpu: &Gpu,
    prompt: DebugPrompt,
    options: DebugOptions,
) -> Result<DebugReport> {
    let model = Model::open(file).await?;
    let ids = prompt_ids(file, prompt)?;
    let n_ctx = context_size(&model, options.n_ctx)?;
    let plan = model.plan.with_kv(options.kv)?;
    // The position decoded last.
    let last = ids.len().max(options.from);
    if ids.is_empty() {
        return Err(Error::BadOption { option: "prompt", found: "empty".into(), expected: "at least one token" });
    }
    if last >= n_ctx {
        return Err(Error::ContextFull { needed: last.saturating_add(1), limit: n_ctx });
    }
    let mut sink = Both { cpu: CpuWeights::default(), gpu: GpuWeights::new(gpu) };
    let mut progress = options.progress.unwrap_or_else(|| Box::new(|_| {}));
    load_weights(file, &model.weights, &mut sink, &mut *progress, &CancelToken::default()).await?;
    let plan = Arc::new(plan);
    let cpu = CpuBackend::new(plan.clone(), sink.cpu, n_ctx)?;
    let device = GpuBackend::new(gpu, plan.clone(), sink.gpu, n_ctx).await?;
    let mut report = DebugReport {
        model: model_name(file),
        adapter: gpu.adapter().name.clone(),
        ids: Vec::new(),
        untraced: 0,
        phases: Vec::new(),
        equal_operations: 0,
        difference: None,
    };
    let mut pair = Pair::new(plan, cpu, device)?;
    search(&mut pair, &ids, options.from, last, &mut report).await?;
    report.ids = pair.fed().to_vec();
    Ok(report)
}

/// Runs the prompt and decodes up to position `last`, or up to the first difference.
async fn search(pair: &mut Pair, prompt: &[u32], from: usize, last: usize, report: &mut DebugReport) -> Result<()> {
    let chunk = pair.max_chunk();
    for tokens in prompt.chunks(chunk) {
        let end = pair.fed().len() + tokens.len();
        let (traced, with_head) = (end > from, end == prompt.len());
        if !pair.run(Run { kind: PhaseKind::Prefill, tokens, traced, with_head }, report).await? {
            return Ok(());
        }
    }
    for position in prompt.len()..=last {
        // Where no logit is a number there is nothing to decode.
        let Some(id) = pair.likeliest() else { return Ok(()) };
        let run = Run { kind: PhaseKind::Decode, tokens: &[id], traced: position == last, with_head: true };
        if !pair.run(run, report).await? {
            return Ok(());
        }
    }
    Ok(())
}

fn prompt_ids(file: &GgufFile, prompt: DebugPrompt) -> Result<Vec<u32>> {
    let metadata = &file.header.metadata;
    match prompt {
        DebugPrompt::Ids(ids) => Ok(ids),
        DebugPrompt::Raw(text) => Ok(Tokenizer::from_metadata(metadata)?.encode_prompt(&text)),
        DebugPrompt::Chat(messages) => {
            let none = || Error::Template { reason: "the file has none; use a raw prompt".into() };
            let template = ChatTemplate::from_metadata(metadata)?.ok_or_else(none)?;
            let text = template.render(&messages, &RenderOptions::default())?;
            Ok(Tokenizer::from_metadata(metadata)?.encode_chat(&text))
        }
    }
}

/// Weights for both, read from the file once.
struct Both {
    cpu: CpuWeights,
    gpu: GpuWeights,
}

impl WeightSink for Both {
    fn allocate(&mut self, id: WeightId, desc: &WeightDesc, layout: &PlaneLayout) -> Result<()> {
        self.cpu.allocate(id, desc, layout)?;
        self.gpu.allocate(id, desc, layout)
    }

    fn write_rows(&mut self, id: WeightId, first_row: usize, n_rows: usize, planes: &Planes) -> Result<()> {
        self.cpu.write_rows(id, first_row, n_rows, planes)?;
        self.gpu.write_rows(id, first_row, n_rows, planes)
    }

    fn write_vector(&mut self, id: WeightId, values: &[f32]) -> Result<()> {
        self.cpu.write_vector(id, values)?;
        self.gpu.write_vector(id, values)
    }
}
