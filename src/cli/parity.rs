//! `blueshift parity`: what a backend answers, for comparing it with others (`cargo xtask parity` does).

use crate::engine::ParityOptions;
use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;

use super::open::{ModelArgs, load};
use super::run::print_now;

#[derive(ClapArgs)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// A file with a prompt a line.
    #[arg(long)]
    prompts: std::path::PathBuf,
    /// Tokens drawn after each prompt, in each way of drawing.
    #[arg(long, default_value_t = 256)]
    tokens: usize,
}

pub(crate) fn main(args: Args) -> Result<()> {
    let text = std::fs::read_to_string(&args.prompts).with_context(|| args.prompts.display().to_string())?;
    let prompts: Vec<String> = text.lines().filter(|line| !line.trim().is_empty()).map(Into::into).collect();
    if prompts.is_empty() {
        bail!("{} has no prompts", args.prompts.display());
    }
    let mut engine = load(&args.model)?;
    let report = pollster::block_on(engine.parity(&ParityOptions { prompts, tokens: args.tokens }))?;
    print_now(&format!("{}\n", serde_json::to_string(&report)?))
}
