//! Qwen 3, dense: a Llama with an RMS norm over each head of the queries and keys, and RoPE over halves.

use super::Context;
use super::dense::QkNorm;
use super::llama;
use crate::error::Result;
use crate::model::weights::Weights;
use crate::plan::{Plan, RopeKind};

pub(super) fn build(cx: Context<'_>) -> Result<(Weights, Plan)> {
    llama::decoder(cx, QkNorm::PerHead, RopeKind::Neox)
}
