//! `blueshift debug`: the first operation whose bits differ between a device and the cpu backend.

use crate::chat::Message;
use crate::engine::debug::{DebugOptions, DebugPrompt, find_difference};
use anyhow::{Result, bail};
use clap::Args as ClapArgs;

use super::open::{BackendArg, KvArg, open_file, open_gpu, shown_progress};
use super::run::print_now;

#[derive(ClapArgs)]
pub(crate) struct Args {
    /// Path or URL of a GGUF file; of the first one where there are several.
    model: String,
    /// The prompt.
    #[arg(short, long)]
    prompt: String,
    /// Take the text as it is, without the chat template.
    #[arg(long)]
    raw: bool,
    /// Which kind of device to compare.
    #[arg(long, value_enum, default_value = "auto")]
    backend: BackendArg,
    /// Part of the name of the adapter to use.
    #[arg(long)]
    adapter: Option<String>,
    /// Tokens the context holds.
    #[arg(long)]
    ctx: Option<usize>,
    /// What keys and values are stored as.
    #[arg(long, value_enum, default_value = "f16")]
    kv: KvArg,
    /// The first position compared operation by operation; those before it run as a whole. Past the prompt, tokens are decoded up to it.
    #[arg(long, value_name = "POSITION", default_value_t = 0)]
    from: usize,
    /// Print one JSON object instead of the text.
    #[arg(long)]
    json: bool,
}

/// Ends the process with 1 where a difference was found.
pub(crate) fn main(args: Args) -> Result<()> {
    let file = open_file(&args.model)?;
    let Some(gpu) = open_gpu(args.backend, args.adapter.as_deref())? else {
        bail!("a device is compared with the CPU: name another backend");
    };
    let prompt = if args.raw {
        DebugPrompt::Raw(args.prompt)
    } else {
        DebugPrompt::Chat(vec![Message::new("user", args.prompt)])
    };
    let (bar, progress) = shown_progress();
    let options = DebugOptions { n_ctx: args.ctx, kv: args.kv.into(), from: args.from, progress: Some(progress) };
    let report = pollster::block_on(find_difference(&file, &gpu, prompt, options));
    bar.finish_and_clear();
    let report = report?;
    let text = if args.json { format!("{}\n", serde_json::to_string(&report)?) } else { report.to_string() };
    print_now(&text)?;
    if !report.is_equal() {
        std::process::exit(1);
    }
    Ok(())
}
