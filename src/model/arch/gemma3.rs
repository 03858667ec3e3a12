//! Gemma 3: scaled embeddings, norms before and after each part, QK norm, GeGLU, five sliding-window layers to one global.

use super::Context;
use super::dense::{self, QkNorm};
use crate::error::Result;
use crate::model::weights::Weights;
use crate::plan::{Activation, Heads, Plan, PlanBuilder, RopeKind, WeightId, builder::QkPrep};

/// Every sixth layer attends to the whole context.
const GLOBAL_EVERY: usize = 6;
/// RoPE base of the sliding-window layers.
const LOCAL_THETA: f64 = 10_000.0;
/// Layers of the 27B model, whose softmax scale is that of `d / n_heads`.
const LAYERS_27B: usize = 62;

struct Layer {
    dense: dense::Layer,
    /// `[d]`
    post_attention_norm: WeightId,
    /// `[d]`
    post_ffw_norm: WeightId,
}

pub(super) fn build(cx: Context<'_>) -> Result<(Weights, Plan)> {
    let c = cx.config;
    let mut w = Weights::default();
    let embedding = dense::embedding(&mut w, cx)?;
    let layers = (0..c.n_layers)
        .map(|i| {
            Ok(Layer {
                dense: dense::Layer::new(&mut w, cx, i, QkNorm::PerHead)?,
                post_attention_norm: w.vector(cx.header, &dense::name(i, "post_attention_norm"), c.d)?,
                post_ffw_norm: w.vector(cx.header, &dense::name(i, "post_ffw_norm"), c.d)?,
            })
        })
        .collect::<Result<Vec<_>>>()?;
    let (output_norm, head) = dense::head(&mut w, cx, embedding)?;

    let mut b = PlanBuilder::new(&w);
    let local_rope = b.rope(c.rope_table(LOCAL_THETA, 1.0, cx.rope_divisors));
    let global_rope = b.rope(c.rope_table(c.rope_theta, c.rope_factor, cx.rope_divisors));
    let scale_dim = if c.n_layers == LAYERS_27B { c.d / c.n_heads } else { c.head_dim };
    let scale = (scale_dim as f64).powf(-0.5);
    let x = b.embed(embedding, (c.d as f32).sqrt());
    for (i, Layer { dense: layer, post_attention_norm, post_ffw_norm }) in layers.iter().enumerate() {
        let local = c.window.is_some() && (i + 1) % GLOBAL_EVERY != 0;
        let window = c.window.filter(|_| local);
        let heads = Heads { n_heads: c.n_heads, n_kv_heads: c.n_kv_heads, head_dim: c.head_dim, window, gated: false };
        let rope = if local { local_rope } else { global_rope };
        let dense::Layer { attention, feed_forward } = layer;
        let (q_norm, k_norm) = (attention.q_norm, attention.k_norm);
        let prep = QkPrep { q_norm, k_norm, eps: c.eps, rope, kind: RopeKind::Neox, scale };
        b.begin_layer();

        let h = b.rms_norm(x, attention.attn_norm, c.eps, &attention.qkv);
        let qkv = b.matmul(&attention.qkv, h);
        let h = b.attention(qkv, heads, prep, &[attention.output]);
        let h = b.matmul(&[attention.output], h);
        b.rms_norm_add(h, *post_attention_norm, c.eps, x);
        let h = b.rms_norm(x, feed_forward.norm, c.eps, &feed_forward.gate_up);
        let gate_up = b.matmul(&feed_forward.gate_up, h);
        let h = b.gated_activation(gate_up, Activation::GeluTanh, &[feed_forward.down]);
        let h = b.matmul(&[feed_forward.down], h);
        b.rms_norm_add(h, *post_ffw_norm, c.eps, x);
    }
    let plan = b.finish(x, output_norm, c.eps, head);
    Ok((w, plan))
}
