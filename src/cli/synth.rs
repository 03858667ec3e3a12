//! `blueshift synth`: a file of random weights at a real model's shape, for measuring speed without a download.

use std::io::BufWriter;

use crate::micro::MicroModel;
use crate::quant::QuantType;
use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;

#[derive(ClapArgs)]
pub(crate) struct Args {
    /// A model whose shapes are taken, for example llama-3.2-1b; `micro` is a tiny one for tests.
    preset: String,
    /// Type of the matrices, for example Q4_0.
    #[arg(long, default_value = "Q4_0")]
    quant: String,
    /// File to write.
    #[arg(long)]
    out: std::path::PathBuf,
}

pub(crate) fn main(args: Args) -> Result<()> {
    let asked = args.quant.to_uppercase();
    let Some(quant) = QuantType::ALL.into_iter().find(|kind| format!("{kind:?}") == asked) else {
        bail!("{} is no block format; there are {:?}", args.quant, QuantType::ALL);
    };
    let micro = (args.preset == "micro").then(|| MicroModel::llama3(quant));
    let Some(model) = micro.or_else(|| MicroModel::real(&args.preset, quant)) else {
        let names: Vec<_> = MicroModel::real_names().chain(["micro"]).collect();
        bail!("{:?} is no preset; there are {}", args.preset, names.join(", "));
    };
    let file = std::fs::File::create(&args.out).with_context(|| args.out.display().to_string())?;
    model.write(&mut BufWriter::new(file)).with_context(|| args.out.display().to_string())
}
