//! Architectures: each turns a header into the list of its weights and the plan over them. None knows a backend.

mod gemma3;
mod llama;

use super::config::Config;
use super::weights::Weights;
use crate::error::{Error, Result};
use crate::gguf::Header;
use crate::plan::Plan;

/// What a builder reads besides the header: the configuration and small tensors that decide tables.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The file's header.
    pub header: &'a Header,
    /// Hyper-parameters.
    pub config: &'a Config,
    /// Divisors of the RoPE frequencies (`rope_freqs.weight`), where the file has them.
    pub rope_divisors: Option<&'a [f32]>,
}

/// Turns a header into weights and plan.
type Build = fn(Context<'_>) -> Result<(Weights, Plan)>;

/// Every supported architecture by its `general.architecture`.
const ARCHITECTURES: [(&str, Build); 2] = [("llama", llama::build), ("gemma3", gemma3::build)];

/// The weights and the plan of a file.
pub fn build(context: Context<'_>) -> Result<(Weights, Plan)> {
    let name = &context.config.architecture;
    match ARCHITECTURES.iter().find(|(known, _)| known == name) {
        Some((_, build)) => build(context),
        None => Err(unsupported(name)),
    }
}

/// Refuses an architecture that is not in the table.
pub fn check_supported(name: &str) -> Result<()> {
    if ARCHITECTURES.iter().any(|(known, _)| *known == name) { Ok(()) } else { Err(unsupported(name)) }
}

fn unsupported(name: &str) -> Error {
    let supported = ARCHITECTURES.map(|(known, _)| known).join(", ");
    Error::UnsupportedArchitecture { name: name.into(), supported }
}
