//! From a source of bytes to a running engine.

use std::collections::VecDeque;
use std::sync::Arc;

use super::any_backend::AnyBackend;
use super::backend::Backend;
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
use crate::plan::{KvType, Plan};
use crate::tokenizer::Tokenizer;

/// Where to compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BackendChoice {
    /// The GPU where there is one that passes the self-test, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// The GPU; an error where there is none.
    Wgpu,
}

/// How to load a model.
#[derive(Default)]
pub struct LoadOptions {
    /// Where to compute.
    pub backend: BackendChoice,
    /// Tokens the cache holds; by default what the model was trained on, at most 4,096.
    pub n_ctx: Option<usize>,
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
        let n_ctx = context_size(&model, options.n_ctx)?;
        let mut device = choose_device(&options, &model).await?;
        let mut progress = options.progress.take().unwrap_or_else(|| Box::new(|_| {}));
        let mut job = Job { file: &file, model: &model, n_ctx, progress: &mut *progress, cancel: &options.cancel };
        let backend = match device.gpu.take() {
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
            n_ctx,
            n_vocab: model.plan.n_vocab,
        };
        Ok(Engine {
            model,
            tokenizer,
            template,
            backend,
            info,
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
    n_ctx: usize,
    progress: &'a mut ProgressFn<'static>,
    cancel: &'a CancelToken,
}

impl Job<'_> {
    async fn on_cpu(&mut self) -> Result<AnyBackend> {
        let mut weights = CpuWeights::default();
        load_weights(self.file, &self.model.weights, &mut weights, self.progress, self.cancel).await?;
        let plan = Arc::new(self.model.plan.clone());
        Ok(AnyBackend::Cpu(Box::new(CpuBackend::new(plan, weights, self.n_ctx)?)))
    }

    async fn on_gpu(&mut self, gpu: &Gpu) -> Result<AnyBackend> {
        let mut weights = GpuWeights::new(gpu);
        load_weights(self.file, &self.model.weights, &mut weights, self.progress, self.cancel).await?;
        let plan = Arc::new(self.model.plan.clone());
        Ok(AnyBackend::Gpu(Box::new(GpuBackend::new(gpu, plan, weights, self.n_ctx).await?)))
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
