//! The weights that the dense architectures share. Comments give the shapes.

use super::Context;
use crate::error::Result;
use crate::model::weights::Weights;
use crate::plan::WeightId;

/// Whether a layer norms each head of its queries and keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QkNorm {
    None,
    PerHead,
}

/// One layer: grouped-query attention, then a gated feed-forward part.
pub(super) struct Layer {
    pub(super) attention: Attention,
    /// `[d]`
    pub(super) ffn_norm: WeightId,
    /// `[n_ffn, d]` twice
    pub(super) gate_up: Vec<WeightId>,
    /// `[d, n_ffn]`
    pub(super) down: WeightId,
}

/// Grouped-query attention.
pub(super) struct Attention {
    /// `[d]`
    pub(super) attn_norm: WeightId,
    /// `[n_heads * head_dim, d]`, `[n_kv_heads * head_dim, d]` twice
    pub(super) qkv: Vec<WeightId>,
    /// `[head_dim]`
    pub(super) q_norm: Option<WeightId>,
    /// `[head_dim]`
    pub(super) k_norm: Option<WeightId>,
    /// `[d, n_heads * head_dim]`
    pub(super) output: WeightId,
}

/// Name of a layer's weight.
pub(super) fn name(layer: usize, part: &str) -> String {
    format!("blk.{layer}.{part}.weight")
}

impl Layer {
    /// The weights of layer `i`.
    pub(super) fn new(w: &mut Weights, cx: Context<'_>, i: usize, qk_norm: QkNorm) -> Result<Self> {
        let (c, header) = (cx.config, cx.header);
        let name = |part: &str| name(i, part);
        Ok(Layer {
            attention: Attention::new(w, cx, i, qk_norm)?,
            ffn_norm: w.vector(header, &name("ffn_norm"), c.d)?,
            gate_up: w.stack(header, &[(&name("ffn_gate"), c.n_ffn), (&name("ffn_up"), c.n_ffn)], c.d)?,
            down: w.matrix(header, &name("ffn_down"), c.d, c.n_ffn)?,
        })
    }
}

impl Attention {
    /// The weights of layer `i`.
    pub(super) fn new(w: &mut Weights, cx: Context<'_>, i: usize, qk_norm: QkNorm) -> Result<Self> {
        let (c, header) = (cx.config, cx.header);
        let (q_width, kv_width) = (c.n_heads * c.head_dim, c.n_kv_heads * c.head_dim);
        let name = |part: &str| name(i, part);
        let (q, k, v) = (name("attn_q"), name("attn_k"), name("attn_v"));
        let mut head_norm = |part: &str| match qk_norm {
            QkNorm::None => Ok(None),
            QkNorm::PerHead => w.vector(header, &name(part), c.head_dim).map(Some),
        };
        let (q_norm, k_norm) = (head_norm("attn_q_norm")?, head_norm("attn_k_norm")?);
        Ok(Attention {
            attn_norm: w.vector(header, &name("attn_norm"), c.d)?,
            qkv: w.stack(header, &[(&q, q_width), (&k, kv_width), (&v, kv_width)], c.d)?,
            q_norm,
            k_norm,
            output: w.matrix(header, &name("attn_output"), c.d, q_width)?,
        })
    }
}

/// The token embedding: `[n_vocab, d]`.
pub(super) fn embedding(w: &mut Weights, cx: Context<'_>) -> Result<WeightId> {
    w.matrix(cx.header, "token_embd.weight", cx.config.n_vocab, cx.config.d)
}

/// The last norm, `[d]`, and the output matrix, `[n_vocab, d]`: the embedding where the file has no other.
pub(super) fn head(w: &mut Weights, cx: Context<'_>, embedding: WeightId) -> Result<(WeightId, WeightId)> {
    let (c, header) = (cx.config, cx.header);
    let norm = w.vector(header, "output_norm.weight", c.d)?;
    let matrix = match header.tensor("output.weight") {
        Some(_) => w.matrix(header, "output.weight", c.n_vocab, c.d)?,
        None => embedding,
    };
    Ok((norm, matrix))
}
