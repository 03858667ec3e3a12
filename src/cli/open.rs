//! Opening models, shared by the commands.

use std::io::IsTerminal;
use std::sync::OnceLock;

use crate::engine::{BackendChoice, Engine, LoadOptions};
use crate::gguf::{self, GgufFile, Source};
use crate::gpu::Gpu;
use crate::model::load::{Progress, ProgressFn};
use crate::plan::KvType;
use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Where to compute.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum BackendArg {
    /// A GPU where there is one that computes rightly, else the CPU; in blueshift-cuda, CUDA.
    Auto,
    /// The CPU.
    Cpu,
    /// A GPU through Vulkan, Metal or DX12.
    Wgpu,
    /// An NVIDIA GPU through CUDA: by the program blueshift-cuda.
    Cuda,
}

/// CUDA devices, which another crate brings.
#[derive(Debug, Clone, Copy)]
pub struct Cuda {
    /// Opens one: the first whose name contains the text, or the first one.
    pub open: fn(Option<&str>) -> crate::Result<Gpu>,
    /// Names of all.
    pub names: fn() -> crate::Result<Vec<String>>,
}

static CUDA: OnceLock<Option<Cuda>> = OnceLock::new();

/// Remembers how CUDA devices are opened.
pub(super) fn offer_cuda(cuda: Option<Cuda>) {
    CUDA.get_or_init(|| cuda);
}

/// CUDA, where it is built in.
pub(super) fn cuda() -> Option<Cuda> {
    CUDA.get().copied().flatten()
}

impl BackendArg {
    /// The backend that is meant: where CUDA is built in, it is what nobody names.
    fn meant(self) -> Self {
        match self {
            BackendArg::Auto if cuda().is_some() => BackendArg::Cuda,
            named => named,
        }
    }
}

/// The device that `backend` means; `None` where it is the CPU.
pub(crate) fn open_gpu(backend: BackendArg, adapter: Option<&str>) -> Result<Option<Gpu>> {
    match (backend.meant(), cuda()) {
        (BackendArg::Cpu, _) => Ok(None),
        (BackendArg::Cuda, Some(cuda)) => Ok(Some((cuda.open)(adapter)?)),
        (BackendArg::Cuda, None) => hand_over(),
        (BackendArg::Auto | BackendArg::Wgpu, _) => Ok(Some(pollster::block_on(Gpu::open(adapter))?)),
    }
}

/// The program with CUDA built in.
const WITH_CUDA: &str = if cfg!(windows) { "blueshift-cuda.exe" } else { "blueshift-cuda" };

/// Runs the same command in the program that has CUDA: beside this one, or on the path. Ends the process.
fn hand_over<T>() -> Result<T> {
    let beside = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.join(WITH_CUDA)));
    let program = beside.filter(|path| path.exists()).unwrap_or_else(|| WITH_CUDA.into());
    match std::process::Command::new(program).args(std::env::args_os().skip(1)).status() {
        Ok(status) => std::process::exit(status.code().unwrap_or(1)),
        Err(error) => bail!(
            "the CUDA backend is the program {WITH_CUDA}, which is neither beside this one nor on the path ({error}): \
             build it by `cargo build --release -p blueshift-native-cuda`"
        ),
    }
}

/// What keys and values are stored as.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum KvArg {
    F16,
    #[value(name = "q8_0")]
    Q8_0,
}

impl From<KvArg> for KvType {
    fn from(kv: KvArg) -> Self {
        match kv {
            KvArg::F16 => KvType::F16,
            KvArg::Q8_0 => KvType::Q8_0,
        }
    }
}

/// Options of every command that computes.
#[derive(Args, Clone)]
pub(crate) struct ModelArgs {
    /// Path or URL of a GGUF file; of the first one where there are several.
    pub(crate) model: String,
    /// Where to compute.
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) backend: BackendArg,
    /// Part of the name of the adapter to use.
    #[arg(long)]
    pub(crate) adapter: Option<String>,
    /// Tokens the context holds.
    #[arg(long)]
    pub(crate) ctx: Option<usize>,
    /// What keys and values are stored as; q8_0 takes about half of f16's room.
    #[arg(long, value_enum, default_value = "f16")]
    pub(crate) kv: KvArg,
}

/// A source for a path or a URL.
async fn source(model: &str) -> crate::Result<Source> {
    if model.starts_with("http://") || model.starts_with("https://") {
        Source::http(model).await
    } else {
        Source::file(model)
    }
}

/// Opens a model's files: siblings of a first shard are found beside it.
pub(crate) fn open_file(model: &str) -> Result<GgufFile> {
    Ok(pollster::block_on(async { gguf::open(source(model).await?).await })?)
}

/// Loads a model with a progress bar on a terminal.
pub(crate) fn load(args: &ModelArgs) -> Result<Engine> {
    load_on(args, None, 1)
}

/// The same for `slots` sequences, on a GPU that is open already, if one is given.
pub(crate) fn load_on(args: &ModelArgs, gpu: Option<Gpu>, slots: usize) -> Result<Engine> {
    let backend = args.backend.meant();
    let gpu = match (gpu, backend) {
        // What WebGPU has is opened with the model: it may be the CPU in the end.
        (None, BackendArg::Cuda) => open_gpu(backend, args.adapter.as_deref())?,
        (gpu, _) => gpu,
    };
    let file = open_file(&args.model)?;
    let (bar, progress) = shown_progress();
    let options = LoadOptions {
        backend: match backend {
            BackendArg::Cpu => BackendChoice::Cpu,
            BackendArg::Auto => BackendChoice::Auto,
            BackendArg::Wgpu | BackendArg::Cuda => BackendChoice::Gpu,
        },
        n_ctx: args.ctx,
        kv: args.kv.into(),
        adapter: args.adapter.clone(),
        gpu,
        slots,
        progress: Some(progress),
        ..Default::default()
    };
    let engine = pollster::block_on(Engine::load_file(file, options));
    bar.finish_and_clear();
    let engine = engine?;
    if let Some(reason) = &engine.info().fallback_reason {
        eprintln!("blueshift: running on the CPU: {reason}");
    }
    if !engine.info().exact {
        eprintln!("blueshift: this device does not give the contract's bits; answers may differ from other machines");
    }
    Ok(engine)
}

/// A progress bar on a terminal, and what moves it.
pub(crate) fn shown_progress() -> (ProgressBar, Box<ProgressFn<'static>>) {
    let bar = progress_bar();
    let moved = bar.clone();
    let progress = move |p: Progress<'_>| {
        moved.set_length(p.total);
        moved.set_position(p.bytes);
    };
    (bar, Box::new(progress))
}

fn progress_bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    bar.set_style(
        ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}").expect("a valid template"),
    );
    if !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    bar
}
