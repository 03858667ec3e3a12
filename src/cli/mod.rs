//! The command line: `blueshift run`, `batch`, `chat`, `tokenize`, `inspect`, `selftest`, `adapters`, `logits`, `parity`, `bench`,
//! `debug`, `synth`. `blueshift-cuda` is the same with a CUDA driver built in.

mod batch;
mod bench;
mod chat;
mod debug;
mod info;
mod logits;
mod open;
mod parity;
mod run;
mod synth;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

pub use open::Cuda;

/// Runs GGUF language models on GPUs and on the CPU, with the same bits everywhere.
#[derive(Parser)]
#[command(name = "blueshift", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Answer one prompt.
    Run(run::Args),
    /// Answer several prompts at once.
    Batch(batch::Args),
    /// Talk to a model.
    Chat(chat::Args),
    /// Print the token ids of a text.
    Tokenize(info::TokenizeArgs),
    /// Print a file's metadata and tensors.
    Inspect(info::InspectArgs),
    /// Check that a device computes the known answer.
    Selftest(info::SelftestArgs),
    /// List the GPU adapters.
    Adapters(info::AdaptersArgs),
    /// Write raw logits.
    Logits(logits::Args),
    /// Print checksums of logits and the ids drawn, for comparing backends.
    Parity(parity::Args),
    /// Measure prefill and decode.
    Bench(bench::Args),
    /// Compare a device with the cpu backend, operation by operation, and name the first one whose bits differ.
    Debug(debug::Args),
    /// Write a file of random weights at a real model's shape.
    Synth(synth::Args),
}

/// Runs the command line; where `cuda` is given its devices are the default. Ends the process with 1 where a command fails.
pub fn main(cuda: Option<Cuda>) {
    open::offer_cuda(cuda);
    let name = if cuda.is_some() { "blueshift-cuda" } else { "blueshift" };
    let matches = Cli::command().name(name).bin_name(name).get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let result = match cli.command {
        Command::Run(args) => run::main(args),
        Command::Batch(args) => batch::main(args),
        Command::Chat(args) => chat::main(args),
        Command::Tokenize(args) => info::tokenize(args),
        Command::Inspect(args) => info::inspect(args),
        Command::Selftest(args) => info::selftest(args),
        Command::Adapters(args) => info::adapters(args),
        Command::Logits(args) => logits::main(args),
        Command::Parity(args) => parity::main(args),
        Command::Bench(args) => bench::main(args),
        Command::Debug(args) => debug::main(args),
        Command::Synth(args) => synth::main(args),
    };
    if let Err(error) = result {
        eprintln!("{name}: {error:#}");
        std::process::exit(1);
    }
}
