//! Commands that look and do not decode: `tokenize`, `inspect`, `selftest`, `adapters`.

use crate::gguf::Value;
use crate::gpu::selftest::{self, Covered};
use crate::gpu::{AdapterSummary, list_adapters};
use crate::quant::QuantType;
use crate::tokenizer::Tokenizer;
use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use serde_json::json;

use super::open::{BackendArg, cuda, open_file, open_gpu};

#[derive(ClapArgs)]
pub(crate) struct TokenizeArgs {
    /// Path or URL of a GGUF file.
    model: String,
    /// The text.
    #[arg(required_unless_present = "file", conflicts_with = "file")]
    text: Option<String>,
    /// A file that holds the text.
    #[arg(long)]
    file: Option<std::path::PathBuf>,
    /// Parse special tokens and add BOS and EOS as the model says.
    #[arg(long)]
    special: bool,
}

pub(crate) fn tokenize(args: TokenizeArgs) -> Result<()> {
    let text = match (args.text, args.file) {
        (Some(text), _) => text,
        (None, Some(path)) => std::fs::read_to_string(&path).with_context(|| path.display().to_string())?,
        (None, None) => unreachable!("clap asks for one of them"),
    };
    let tokenizer = Tokenizer::from_metadata(&open_file(&args.model)?.header.metadata)?;
    let ids = if args.special { tokenizer.encode_prompt(&text) } else { tokenizer.encode(&text, false) };
    println!("{}", json!(ids));
    Ok(())
}

#[derive(ClapArgs)]
pub(crate) struct InspectArgs {
    /// Path or URL of a GGUF file.
    model: String,
}

pub(crate) fn inspect(args: InspectArgs) -> Result<()> {
    let file = open_file(&args.model)?;
    println!("GGUF version {}, {} file(s)", file.header.version, file.sources.len());
    for (key, value) in file.header.metadata.iter() {
        println!("{key} = {}", shown(value));
    }
    for t in file.header.tensors() {
        println!("{:40} {:>5?} {:?} {} bytes at {}", t.name, t.kind, t.dims, t.bytes, t.offset);
    }
    Ok(())
}

/// A value on one line, long text cut.
fn shown(value: &Value) -> String {
    const LONGEST: usize = 100;
    let text = value.describe();
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}...", &text[..at]).replace('\n', "\\n"),
        None => text.replace('\n', "\\n"),
    }
}

#[derive(ClapArgs)]
pub(crate) struct SelftestArgs {
    /// Which kind of device to test.
    #[arg(long, value_enum, default_value = "auto")]
    backend: BackendArg,
    /// Part of the name of the adapter to test.
    #[arg(long)]
    adapter: Option<String>,
}

pub(crate) fn selftest(args: SelftestArgs) -> Result<()> {
    let Some(gpu) = open_gpu(args.backend, args.adapter.as_deref())? else {
        bail!("the self-test compares a GPU with the CPU");
    };
    let report = pollster::block_on(selftest::run(&gpu, &QuantType::ALL, Covered::ALL))?;
    println!(
        "{}: {} in {:.1} ms",
        gpu.adapter().name,
        if report.exact { "exact" } else { "NOT exact" },
        report.milliseconds
    );
    if !report.exact {
        bail!("the device's bits differ from the contract's, first in {}", report.first_difference.unwrap_or_default());
    }
    Ok(())
}

#[derive(ClapArgs)]
pub(crate) struct AdaptersArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn adapters(args: AdaptersArgs) -> Result<()> {
    let mut adapters = pollster::block_on(list_adapters());
    if let Some(cuda) = cuda() {
        let summary = |name| AdapterSummary { name, api: "cuda".into(), kind: "NVIDIA".into(), driver: String::new() };
        adapters.extend((cuda.names)().unwrap_or_default().into_iter().map(summary));
    }
    if args.json {
        println!(
            "{}",
            json!(adapters.iter().map(|a| json!({"name": a.name, "api": a.api, "type": a.kind})).collect::<Vec<_>>())
        );
        return Ok(());
    }
    for a in &adapters {
        println!("{} ({}, {})", a.name, a.api, a.kind);
    }
    if adapters.is_empty() {
        println!("no GPU adapter: models run on the CPU");
    }
    Ok(())
}
