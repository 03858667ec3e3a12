//! Architectures: each turns a header into the list of its weights and the plan over them. None knows a backend.

mod delta_net;
mod dense;
mod experts;
mod gemma3;
mod llama;
mod qwen3;
mod qwen35;
mod qwen3moe;
mod qwen3next;

use std::collections::HashSet;

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
const ARCHITECTURES: [(&str, Build); 7] = [
    ("llama", llama::build),
    ("gemma3", gemma3::build),
    ("qwen3", qwen3::build),
    ("qwen3moe", qwen3moe::build),
    ("qwen3next", qwen3next::build),
    ("qwen35", qwen35::build),
    ("qwen35moe", qwen3next::build_qwen35moe),
];

/// The weights and the plan of a file.
pub fn build(context: Context<'_>) -> Result<(Weights, Plan)> {
    let name = &context.config.architecture;
    let Some((_, build)) = ARCHITECTURES.iter().find(|(known, _)| known == name) else {
        return Err(unsupported(name));
    };
    let (weights, plan) = build(context)?;
    refuse_unused(context, &weights)?;
    Ok((weights, plan))
}

/// A layer's tensor that the plan does not read means that the plan is not the model's: its answers would be wrong. Draft layers are not
/// part of the model's answers.
fn refuse_unused(cx: Context<'_>, weights: &Weights) -> Result<()> {
    let used: HashSet<&str> = weights.iter().flat_map(|(_, desc)| &desc.tensors).map(|t| t.name.as_str()).collect();
    let drafts = cx.config.n_layers..cx.config.n_layers + cx.config.n_draft_layers;
    let layer = |name: &str| name.strip_prefix("blk.")?.split('.').next()?.parse().ok();
    let is_draft = |name: &str| layer(name).is_some_and(|layer: usize| drafts.contains(&layer));
    let is_unused = |name: &str| name.starts_with("blk.") && !is_draft(name) && !used.contains(name);
    let mut unused = cx.header.tensors().iter().filter(|t| is_unused(&t.name));
    match unused.next() {
        None => Ok(()),
        Some(info) => Err(Error::BadTensor {
            tensor: info.name.clone(),
            found: "a tensor that this architecture is not known to have".into(),
            expected: "only tensors that its layers use".into(),
        }),
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
