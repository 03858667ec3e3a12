//! Llama and its descendants: RMS norm, grouped-query attention with RoPE, SwiGLU.

use super::Context;
use crate::error::Result;
use crate::model::weights::Weights;
use crate::plan::{Activation, Heads, Plan, PlanBuilder, RopeKind, WeightId, builder::QkPrep};

struct Layer {
    attn_norm: WeightId,
    qkv: Vec<WeightId>,
    output: WeightId,
    ffn_norm: WeightId,
    gate_up: Vec<WeightId>,
    down: WeightId,
}

pub(super) fn build(cx: Context<'_>) -> Result<(Weights, Plan)> {
    let (c, header) = (cx.config, cx.header);
    let (q_width, kv_width) = (c.n_heads * c.head_dim, c.n_kv_heads * c.head_dim);
    let mut w = Weights::default();
    let embedding = w.matrix(header, "token_embd.weight", c.n_vocab, c.d)?;
    let layers = (0..c.n_layers)
        .map(|i| {
            let name = |part: &str| format!("blk.{i}.{part}.weight");
            Ok(Layer {
                attn_norm: w.vector(header, &name("attn_norm"), c.d)?,
                qkv: w.stack(
                    header,
                    &[(&name("attn_q"), q_width), (&name("attn_k"), kv_width), (&name("attn_v"), kv_width)],
                    c.d,
                )?,
                output: w.matrix(header, &name("attn_output"), c.d, q_width)?,
                ffn_norm: w.vector(header, &name("ffn_norm"), c.d)?,
                gate_up: w.stack(header, &[(&name("ffn_gate"), c.n_ffn), (&name("ffn_up"), c.n_ffn)], c.d)?,
                down: w.matrix(header, &name("ffn_down"), c.d, c.n_ffn)?,
            })
        })
        .collect::<Result<Vec<_>>>()?;
    let output_norm = w.vector(header, "output_norm.weight", c.d)?;
    let head = match header.tensor("output.weight") {
        Some(_) => w.matrix(header, "output.weight", c.n_vocab, c.d)?,
        None => embedding,
    };

    let heads = Heads { n_heads: c.n_heads, n_kv_heads: c.n_kv_heads, head_dim: c.head_dim, window: None };
    let mut b = PlanBuilder::new(&w);
    let rope = b.rope(c.rope_table(c.rope_theta, c.rope_factor, cx.rope_divisors));
    let scale = (c.head_dim as f64).powf(-0.5);
    let prep = QkPrep { q_norm: None, k_norm: None, eps: c.eps, rope, kind: RopeKind::Norm, scale };
    let x = b.embed(embedding, 1.0);
    for layer in &layers {
        b.begin_layer();
        let h = b.rms_norm(x, layer.attn_norm, c.eps, &layer.qkv);
        let qkv = b.matmul(&layer.qkv, h);
        let h = b.attention(qkv, heads, prep, &[layer.output]);
        b.matmul_add(layer.output, h, x);
        let h = b.rms_norm(x, layer.ffn_norm, c.eps, &layer.gate_up);
        let gate_up = b.matmul(&layer.gate_up, h);
        let h = b.gated_activation(gate_up, Activation::Silu, &[layer.down]);
        b.matmul_add(layer.down, h, x);
    }
    let plan = b.finish(x, output_norm, c.eps, head);
    Ok((w, plan))
}
