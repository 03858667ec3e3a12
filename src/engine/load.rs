//! From a source of bytes to a running engine.

use std::cell::OnceCell;
use std::collections::VecDeque;
use std::sync::Arc;

use super::any_backend::AnyBackend;
use super::backend::{Backend, Capacity, WeightSink};
use super::fingerprint::{self, Fingerprinting};
use super::flow::FlowControl;
use super::policy::{Flow, Policy};
use super::recurrent::Recurrent;
use super::{Engine, Info};
use crate::chat::ChatTemplate;
use crate::cpu::backend::{CpuBackend, CpuWeights};
use crate::error::{Error, Result};
use crate::gguf::{self, GgufFile, Source};
use crate::gpu::selftest::{self, Covered};
use crate::gpu::{Gpu, GpuBackend, GpuWeights};
use crate::model::Model;
use crate::model::load::{CancelToken, ProgressFn, load_weights};
use crate::model::weights::Role;
use crate::plan::{KvType, PAGE, Plan};
use crate::tokenizer::Tokenizer;

/// Where to compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BackendChoice {
    /// The GPU where there is one that passes the self-test, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// The GPU, [`LoadOptions::gpu`] where one is given; an error where there is none.
    Gpu,
}

/// How to load a model.
pub struct LoadOptions {
    /// Where to compute.
    pub backend: BackendChoice,
    /// Tokens the cache holds; by default what the model was trained on, at most 4,096.
    pub n_ctx: Option<usize>,
    /// Sequences that a [`Scheduler`](super::Scheduler) runs at once, 1 to 64.
    pub slots: usize,
    /// Bytes of the cache that all sequences share, rounded down to whole pages; by default what `slots` sequences of `n_ctx` tokens need. At least
    /// one sequence of `n_ctx` tokens has to fit; where `n_ctx` is not given it is as large as fits.
    pub cache_bytes: Option<u64>,
    /// What keys and values are stored as.
    pub kv: KvType,
    /// Picks the adapter whose name contains this text.
    pub adapter: Option<String>,
    /// A device that is open already: it is used, whatever `adapter` says, where the backend may be a GPU.
    pub gpu: Option<Gpu>,
    /// How to decode, where a request does not say.
    pub policy: Policy,
    /// Called as tensors arrive.
    pub progress: Option<Box<ProgressFn<'static>>>,
    /// Cancels the load.
    pub cancel: CancelToken,
}

impl Default for LoadOptions {
    fn default() -> Self {
        LoadOptions {
            backend: BackendChoice::Auto,
            n_ctx: None,
            slots: 1,
            cache_bytes: None,
            kv: KvType::default(),
            adapter: None,
            gpu: None,
            policy: Policy::default(),
            progress: None,
            cancel: CancelToken::default(),
        }
    }
}

/// Context size where none is asked for.
const DEFAULT_N_CTX: usize = 4096;

impl Engine {
    /// Loads the model in `source`.
    ///
    /// # Errors
    /// Whatever is wrong with the file, the device or the options; see [`Error`].
    pub async fn load(source: Source, options: LoadOptions) -> Result<Engine> {
        Self::load_file(gguf::open(source).await?, options).await
    }

    /// Loads a model from a file that is open already.
    pub async fn load_file(file: GgufFile, mut options: LoadOptions) -> Result<Engine> {
        options.policy.check()?;
        let mut model = Model::open(&file).await?;
        model.plan = model.plan.with_kv(options.kv)?;
        let tokenizer = Tokenizer::from_metadata(&file.header.metadata)?;
        let template = ChatTemplate::from_metadata(&file.header.metadata).map_err(|error| error.to_string());
        let capacity = capacity(&model, &options)?;
        let mut device = choose_device(&options, &model).await?;
        let mut progress = options.progress.take().unwrap_or_else(|| Box::new(|_| {}));
        let mut job = Job { file: &file, model: &model, capacity, progress: &mut *progress, cancel: &options.cancel };
        let (backend, fingerprint) = match device.gpu.take() {
            None => job.on_cpu().await?,
            Some(gpu) => match job.on_gpu(&gpu).await {
                Err(error) if options.backend == BackendChoice::Auto && is_lack_of_room(&error) => {
                    device = Device::cpu(Some(error.to_string()));
                    job.on_cpu().await?
                }
                loaded => loaded?,
            },
        };
        let is_recurrent = !model.plan.recurrent.is_empty();
        let recurrent = is_recurrent.then(|| Recurrent::new(backend.capacity().snapshots));
        let info = Info {
            name: model_name(&file),
            architecture: model.config.architecture.clone(),
            parameters: file.header.tensors().iter().map(|t| t.rows() as u64 * t.row_len() as u64).sum(),
            weight_bytes: model.weights.file_bytes(),
            bytes_per_token: bytes_per_token(&model),
            backend: backend.info().backend.into(),
            adapter: backend.info().adapter.clone(),
            exact: device.exact,
            fallback_reason: device.fallback_reason,
            n_ctx: capacity.n_ctx,
            n_vocab: model.plan.n_vocab,
        };
        Ok(Engine {
            model,
            tokenizer: Arc::new(tokenizer),
            grammars: OnceCell::new(),
            template,
            backend,
            info,
            fingerprint,
            cached: Vec::new(),
            recurrent,
            policy: options.policy,
            flow: ((Flow::Fixed { burst: 1, in_flight: 1 }, 0, 0), FlowControl::fixed(1, 1)),
            in_flight: VecDeque::new(),
            generations: 0,
        })
    }
}

/// The weights' way to a backend.
struct Job<'a> {
    file: &'a GgufFile,
    model: &'a Model,
    capacity: Capacity,
    progress: &'a mut ProgressFn<'static>,
    cancel: &'a CancelToken,
}

impl Job<'_> {
    /// Loads the weights; returns the model's fingerprint.
    async fn load(&mut self, weights: &mut impl WeightSink) -> Result<u64> {
        let mut hash = fingerprint::of_header(&self.file.header, self.model);
        let mut sink = Fingerprinting { sink: weights, hash: &mut hash };
        load_weights(self.file, &self.model.weights, &mut sink, self.progress, self.cancel).await?;
        Ok(hash.value())
    }

    async fn on_cpu(&mut self) -> Result<(AnyBackend, u64)> {
        let mut weights = CpuWeights::default();
        let fingerprint = self.load(&mut weights).await?;
        let plan = Arc::new(self.model.plan.clone());
        Ok((AnyBackend::Cpu(Box::new(CpuBackend::new(plan, weights, self.capacity)?)), fingerprint))
    }

    async fn on_gpu(&mut self, gpu: &Gpu) -> Result<(AnyBackend, u64)> {
        let mut weights = GpuWeights::new(gpu);
        let fingerprint = self.load(&mut weights).await?;
        let plan = Arc::new(self.model.plan.clone());
        Ok((AnyBackend::Gpu(Box::new(GpuBackend::new(gpu, plan, weights, self.capacity).await?)), fingerprint))
    }
}

/// Whether a device refused a model for its size.
fn is_lack_of_room(error: &Error) -> bool {
    matches!(error, Error::OutOfDeviceMemory { .. } | Error::ContextFull { .. })
}

struct Device {
    gpu: Option<Gpu>,
    exact: bool,
    fallback_reason: Option<String>,
}

impl Device {
    fn cpu(fallback_reason: Option<String>) -> Self {
        Device { gpu: None, exact: true, fallback_reason }
    }
}

/// Opens and tests the GPU as the options ask.
async fn choose_device(options: &LoadOptions, model: &Model) -> Result<Device> {
    if options.backend == BackendChoice::Cpu {
        return Ok(Device::cpu(None));
    }
    match tested_gpu(options, model).await {
        Ok((gpu, exact)) => Ok(Device { gpu: Some(gpu), exact, fallback_reason: None }),
        Err(error) if options.backend == BackendChoice::Auto => Ok(Device::cpu(Some(error.to_string()))),
        Err(error) => Err(error),
    }
}

async fn tested_gpu(options: &LoadOptions, model: &Model) -> Result<(Gpu, bool)> {
    let gpu = match &options.gpu {
        Some(gpu) => gpu.clone(),
        None => Gpu::open(options.adapter.as_deref()).await?,
    };
    let matrices = model.weights.iter().filter(|(_, desc)| desc.role == Role::Matrix);
    let kinds: Vec<_> = matrices.map(|(_, desc)| desc.kind).collect();
    let covered = Covered {
        experts: model.config.experts.is_some(),
        recurrent: !model.plan.recurrent.is_empty(),
        q8_0_cache: options.kv == KvType::Q8_0,
    };
    let exact = selftest::run(&gpu, &kinds, covered).await?.exact;
    Ok((gpu, exact))
}

pub(super) fn context_size(model: &Model, asked: Option<usize>) -> Result<usize> {
    let trained = model.config.n_ctx_train;
    match asked {
        None => Ok(trained.min(DEFAULT_N_CTX)),
        Some(n) if n >= 1 && n <= trained => Ok(n),
        Some(n) => Err(Error::ContextFull { needed: n, limit: trained }),
    }
}

/// Room for the sequences asked for.
fn capacity(model: &Model, options: &LoadOptions) -> Result<Capacity> {
    let n_ctx = context_size(model, options.n_ctx)?;
    let slots = options.slots;
    let of = |n_ctx| Capacity { slots, snapshots: slots.max(4), ..Capacity::from(n_ctx) };
    let Some(bytes) = options.cache_bytes else {
        let pages = n_ctx.div_ceil(PAGE).saturating_mul(slots);
        return Ok(Capacity { pages, ..of(n_ctx) });
    };
    let page_bytes = model.plan.page_bytes() as u64;
    let pages = usize::try_from(bytes / page_bytes).unwrap_or(usize::MAX);
    let wanted = if options.n_ctx.is_some() { n_ctx } else { n_ctx.min(pages.saturating_mul(PAGE)).max(1) };
    if wanted.div_ceil(PAGE) > pages {
        let needed = wanted.div_ceil(PAGE) as u64 * page_bytes;
        return Err(Error::CacheTooSmall { tokens: wanted, needed, there: bytes });
    }
    // More than every sequence could use is not needed.
    let pages = pages.min(wanted.div_ceil(PAGE).saturating_mul(slots));
    Ok(Capacity { pages, ..of(wanted) })
}

pub(super) fn model_name(file: &GgufFile) -> String {
    match file.header.metadata.opt_str("general.name") {
        Ok(Some(name)) => name.to_string(),
        _ => file.sources[0].name().to_string(),
    }
}

/// Bytes of the matrices that a step reads, in the file's formats.
fn bytes_per_token(model: &Model) -> u64 {
    let Plan { body, head, .. } = &model.plan;
    body.iter().chain(head).map(|op| model.plan.weight_bytes(op)).sum()
}
