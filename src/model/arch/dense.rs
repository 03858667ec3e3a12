//! The parts that the dense architectures share: their weights and what they add to a plan. Comments give the shapes of weights.

use super::Context;
use crate::error::Result;
use crate::model::weights::Weights;
use crate::plan::builder::QkPrep;
use crate::plan::{Activation, BufferId, Heads, PlanBuilder, RopeKind, WeightId};

/// Whether a layer norms each head of its queries and keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QkNorm {
    None,
    PerHead,
}

/// One layer: grouped-query attention, then a gated feed-forward part.
pub(super) struct Layer {
    pub(super) attention: Attention,
    pub(super) feed_forward: FeedForward,
}

/// A gated feed-forward part.
pub(super) struct FeedForward {
    /// `[d]`
    pub(super) norm: WeightId,
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
        Ok(Layer {
            attention: Attention::new(w, cx, i, qk_norm)?,
            feed_forward: FeedForward::new(w, cx, i, "ffn_norm")?,
        })
    }
}

impl FeedForward {
    /// The weights of layer `i`, whose norm is called `norm`.
    pub(super) fn new(w: &mut Weights, cx: Context<'_>, i: usize, norm: &str) -> Result<Self> {
        let (c, header) = (cx.config, cx.header);
        let name = |part: &str| name(i, part);
        Ok(FeedForward {
            norm: w.vector(header, &name(norm), c.d)?,
            gate_up: w.stack(header, &[(&name("ffn_gate"), c.n_ffn), (&name("ffn_up"), c.n_ffn)], c.d)?,
            down: w.matrix(header, &name("ffn_down"), c.d, c.n_ffn)?,
        })
    }

    /// `x += down(silu(gate) * up)` of the normed `x`.
    pub(super) fn add(&self, b: &mut PlanBuilder<'_>, eps: f32, x: BufferId) {
        let h = b.rms_norm(x, self.norm, eps, &self.gate_up);
        let gate_up = b.matmul(&self.gate_up, h);
        let h = b.gated_activation(gate_up, Activation::Silu, &[self.down]);
        b.matmul_add(self.down, h, x);
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

/// What the attention of every layer has in common.
pub(super) struct Attending {
    heads: Heads,
    rope: usize,
    kind: RopeKind,
    scale: f64,
}

impl Attending {
    /// Attention to everything before, with the file's RoPE and the usual scale.
    pub(super) fn new(b: &mut PlanBuilder<'_>, cx: Context<'_>, kind: RopeKind) -> Self {
        let c = cx.config;
        let heads =
            Heads { n_heads: c.n_heads, n_kv_heads: c.n_kv_heads, head_dim: c.head_dim, window: None, gated: false };
        let rope = b.rope(c.rope_table(c.rope_theta, c.rope_factor, cx.rope_divisors));
        Attending { heads, rope, kind, scale: (c.head_dim as f64).powf(-0.5) }
    }
}

impl Attention {
    /// `x += output(attention)` of the normed `x`.
    pub(super) fn add(&self, b: &mut PlanBuilder<'_>, how: &Attending, eps: f32, x: BufferId) {
        let &Attending { heads, rope, kind, scale } = how;
        let prep = QkPrep { q_norm: self.q_norm, k_norm: self.k_norm, eps, rope, kind, scale };
        let h = b.rms_norm(x, self.attn_norm, eps, &self.qkv);
        let qkv = b.matmul(&self.qkv, h);
        let h = b.attention(qkv, heads, prep, &[self.output]);
        b.matmul_add(self.output, h, x);
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
