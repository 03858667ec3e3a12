//! Opening models, shared by the commands.

use std::io::IsTerminal;

use anyhow::Result;
use blueshift::engine::{BackendChoice, Engine, LoadOptions};
use blueshift::gguf::{self, GgufFile, Source};
use blueshift::gpu::Gpu;
use blueshift::model::load::{Progress, ProgressFn};
use blueshift::plan::KvType;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Where to compute.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum BackendArg {
    Auto,
    Cpu,
    Wgpu,
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
async fn source(model: &str) -> blueshift::Result<Source> {
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
    let file = open_file(&args.model)?;
    let (bar, progress) = shown_progress();
    let options = LoadOptions {
        backend: match args.backend {
            BackendArg::Auto => BackendChoice::Auto,
            BackendArg::Cpu => BackendChoice::Cpu,
            BackendArg::Wgpu => BackendChoice::Wgpu,
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
