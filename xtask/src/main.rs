//! The project's build commands: `cargo xtask <command>`.

mod check;
mod cuda;
mod demo;
mod models;
mod parity;
mod run;
mod serve;
mod system;
mod web;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Builds, serves and checks blueshift.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Builds the npm package: wasm, JavaScript glue, TypeScript.
    Web {
        /// Keeps names and debug assertions in the wasm.
        #[arg(long)]
        dev: bool,
    },
    /// Downloads the models that the demo and the tests use.
    FetchModels {
        /// Which of them.
        #[arg(value_enum, default_value_t = models::Which::All)]
        which: models::Which,
        /// The folder they go to; by default the user's cache.
        #[arg(long)]
        dir: Option<PathBuf>,
    },
    /// Serves the demo page on loopback, without building anything.
    Serve {
        /// TCP port; 0 lets the system choose.
        #[arg(long, default_value_t = 8030)]
        port: u16,
        /// The folder served under `/models/`; by default the user's cache.
        #[arg(long)]
        dir: Option<PathBuf>,
    },
    /// Installs what is missing (on Debian as root), builds everything the demo page needs, serves it and opens it.
    Demo {
        /// TCP port; 0 lets the system choose.
        #[arg(long, default_value_t = 8030)]
        port: u16,
        /// Prints the address and opens nothing.
        #[arg(long)]
        no_open: bool,
    },
    /// Asks every backend of this machine (cpu, wgpu, headless Chromium, cuda) the same and compares the bits of logits and ids.
    Parity {
        /// A GGUF file.
        #[arg(long)]
        model: PathBuf,
        /// A file with a prompt a line; by default three of the tests'.
        #[arg(long)]
        prompts: Option<PathBuf>,
        /// Tokens drawn after each prompt, in each way of drawing.
        #[arg(long, default_value_t = 256)]
        tokens: usize,
        /// Chromium's adapter: hw or sw.
        #[arg(long, default_value = "hw", value_parser = ["hw", "sw"])]
        adapter: String,
    },
    /// Packs the tests of the CUDA backend for a machine with an NVIDIA GPU, which needs neither Rust nor a network.
    GpuTests {
        /// The folder they are packed in.
        folder: PathBuf,
    },
    /// Installs what is missing (on Debian as root) and runs every check: format, lints, docs, native, wasm and browser tests.
    Test,
}

fn main() -> ExitCode {
    match perform(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn perform(command: Command) -> Result<()> {
    match command {
        Command::Web { dev } => web::build(if dev { web::Profile::Dev } else { web::Profile::Release }),
        Command::FetchModels { which, dir } => models::fetch(which, &models::folder(dir)?),
        Command::Serve { port, dir } => demo::serve(port, &models::folder(dir)?, false),
        Command::Demo { port, no_open } => demo::demo(port, !no_open),
        Command::Parity { model, prompts, tokens, adapter } => {
            parity::parity(&parity::Options { model, prompts, tokens, adapter })
        }
        Command::GpuTests { folder } => cuda::pack_tests(&folder),
        Command::Test => check::all(),
    }
}
