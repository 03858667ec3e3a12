//! `blueshift logits`: raw logits to a file, for comparing backends.

use anyhow::{Context, Result};
use clap::Args as ClapArgs;

use super::open::{ModelArgs, load};

#[derive(ClapArgs)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// Token ids, separated by commas.
    #[arg(long, value_delimiter = ',', required = true)]
    ids: Vec<u32>,
    /// Tokens fed at once; 0 leaves it to the backend.
    #[arg(long, default_value_t = 0)]
    chunk: usize,
    /// Write every row instead of the last.
    #[arg(long)]
    all: bool,
    /// File to write: little-endian f32, row after row.
    #[arg(long)]
    out: std::path::PathBuf,
}

pub(crate) fn main(args: Args) -> Result<()> {
    let mut engine = load(&args.model)?;
    let rows = pollster::block_on(engine.logits(&args.ids, args.chunk, args.all))?;
    let bytes: Vec<u8> = rows.iter().flat_map(|x| x.to_le_bytes()).collect();
    std::fs::write(&args.out, bytes).with_context(|| args.out.display().to_string())
}
