//! Llama and its descendants: RMS norm, grouped-query attention with RoPE, SwiGLU.

use super::Context;
use super::dense::{self, Layer, QkNorm};
use crate::error::Result;
use crate::model::weights::Weights;
use crate::plan::{Activation, Heads, Plan, PlanBuilder, RopeKind, builder::QkPrep};

pub(super) fn build(cx: Context<'_>) -> Result<(Weights, Plan)> {
    decoder(cx, QkNorm::None, RopeKind::Norm)
}

/// A Llama whose queries and keys are prepared as told.
pub(super) fn decoder(cx: Context<'_>, qk_norm: QkNorm, kind: RopeKind) -> Result<(Weights, Plan)> {
    let c = cx.config;
    let mut w = Weights::default();
    let embedding = dense::embedding(&mut w, cx)?;
    let layers = (0..c.n_layers).map(|i| Layer::new(&mut w, cx, i, qk_norm)).collect::<Result<Vec<_>>>()?;
    let (output_norm, head) = dense::head(&mut w, cx, embedding)?;

    let heads =
        Heads { n_heads: c.n_heads, n_kv_heads: c.n_kv_heads, head_dim: c.head_dim, window: None, gated: false };
    let mut b = PlanBuilder::new(&w);
    let rope = b.rope(c.rope_table(c.rope_theta, c.rope_factor, cx.rope_divisors));
    let scale = (c.head_dim as f64).powf(-0.5);
    let x = b.embed(embedding, 1.0);
    for layer in &layers {
        let attention = &layer.attention;
        let prep = QkPrep { q_norm: attention.q_norm, k_norm: attention.k_norm, eps: c.eps, rope, kind, scale };
        b.begin_layer();

        let h = b.rms_norm(x, attention.attn_norm, c.eps, &attention.qkv);
        let qkv = b.matmul(&attention.qkv, h);
        let h = b.attention(qkv, heads, prep, &[attention.output]);
        b.matmul_add(attention.output, h, x);
        let h = b.rms_norm(x, layer.ffn_norm, c.eps, &layer.gate_up);
        let gate_up = b.matmul(&layer.gate_up, h);
        let h = b.gated_activation(gate_up, Activation::Silu, &[layer.down]);
        b.matmul_add(layer.down, h, x);
    }
    let plan = b.finish(x, output_norm, c.eps, head);
    Ok((w, plan))
}
