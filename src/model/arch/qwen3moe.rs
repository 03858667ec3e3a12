//! Qwen 3, mixture of experts: Qwen 3's attention, and a feed-forward part of which a router picks a few experts a token.

use super::Context;
use super::dense::{self, Attention, QkNorm};
use crate::error::{Error, Result};
use crate::model::config::Experts;
use crate::model::weights::Weights;
use crate::plan::{Activation, Heads, Plan, PlanBuilder, RopeKind, WeightId, builder::QkPrep};

struct Layer {
    attention: Attention,
    /// `[d]`
    ffn_norm: WeightId,
    /// `[n_experts, d]`
    router: WeightId,
    /// `[n_experts, n_ffn, d]` twice
    gate_up: [WeightId; 2],
    /// `[n_experts, d, n_ffn]`
    down: WeightId,
}

impl Layer {
    fn new(w: &mut Weights, cx: Context<'_>, i: usize, n_experts: usize) -> Result<Self> {
        let (c, header) = (cx.config, cx.header);
        let name = |part: &str| dense::name(i, part);
        Ok(Layer {
            attention: Attention::new(w, cx, i, QkNorm::PerHead)?,
            ffn_norm: w.vector(header, &name("ffn_norm"), c.d)?,
            router: w.matrix(header, &name("ffn_gate_inp"), n_experts, c.d)?,
            gate_up: [
                w.experts(header, &name("ffn_gate_exps"), n_experts, c.n_ffn, c.d)?,
                w.experts(header, &name("ffn_up_exps"), n_experts, c.n_ffn, c.d)?,
            ],
            down: w.experts(header, &name("ffn_down_exps"), n_experts, c.d, c.n_ffn)?,
        })
    }
}

pub(super) fn build(cx: Context<'_>) -> Result<(Weights, Plan)> {
    let c = cx.config;
    let Experts { n_experts, n_used } = experts(cx)?;
    let mut w = Weights::default();
    let embedding = dense::embedding(&mut w, cx)?;
    let layers = (0..c.n_layers).map(|i| Layer::new(&mut w, cx, i, n_experts)).collect::<Result<Vec<_>>>()?;
    let (output_norm, head) = dense::head(&mut w, cx, embedding)?;

    let heads =
        Heads { n_heads: c.n_heads, n_kv_heads: c.n_kv_heads, head_dim: c.head_dim, window: None, gated: false };
    let mut b = PlanBuilder::new(&w);
    let rope = b.rope(c.rope_table(c.rope_theta, c.rope_factor, cx.rope_divisors));
    let scale = (c.head_dim as f64).powf(-0.5);
    let x = b.embed(embedding, 1.0);
    for Layer { attention, ffn_norm, router, gate_up, down } in &layers {
        let (q_norm, k_norm) = (attention.q_norm, attention.k_norm);
        let prep = QkPrep { q_norm, k_norm, eps: c.eps, rope, kind: RopeKind::Neox, scale };
        b.begin_layer();

        let h = b.rms_norm(x, attention.attn_norm, c.eps, &attention.qkv);
        let qkv = b.matmul(&attention.qkv, h);
        let h = b.attention(qkv, heads, prep, &[attention.output]);
        b.matmul_add(attention.output, h, x);
        let h = b.rms_norm(x, *ffn_norm, c.eps, &[*router, gate_up[0], gate_up[1]]);
        let route = b.route(*router, h, n_used);
        let gate_up = b.expert_matmul(gate_up, h, route);
        let h = b.gated_activation(gate_up, Activation::Silu, &[*down]);
        let y = b.expert_matmul(&[*down], h, route);
        b.combine_experts(y, route, x);
    }
    let plan = b.finish(x, output_norm, c.eps, head);
    Ok((w, plan))
}

/// The experts; refuses files that weigh them in another way.
fn experts(cx: Context<'_>) -> Result<Experts> {
    let meta = &cx.header.metadata;
    let name = |key: &str| format!("qwen3moe.{key}");
    let bad = |key: &str, found: String, expected: &str| {
        Err(Error::BadValue { key: name(key), found, expected: expected.into() })
    };
    if meta.opt_bool(&name("expert_weights_norm"))? == Some(false) {
        return bad("expert_weights_norm", "false".into(), "true: weights that add up to 1");
    }
    if let Some(scale) = meta.opt_f32(&name("expert_weights_scale"))?
        && scale != 0.0
        && scale != 1.0
    {
        return bad("expert_weights_scale", scale.to_string(), "1, or 0 for none");
    }
    match cx.config.experts {
        Some(experts) => Ok(experts),
        None => bad("expert_count", "none".into(), "the number of experts"),
    }
}
