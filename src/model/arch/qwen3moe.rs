//! Qwen 3, mixture of experts: Qwen 3's attention, and a feed-forward part of which a router picks a few experts a token.

use super::Context;
use super::dense::{self, Attending, Attention, QkNorm};
use super::experts::{self, Routed};
use crate::error::{Error, Result};
use crate::model::config::Experts;
use crate::model::weights::Weights;
use crate::plan::{Plan, PlanBuilder, RopeKind, WeightId};

struct Layer {
    attention: Attention,
    /// `[d]`
    ffn_norm: WeightId,
    experts: Routed,
}

impl Layer {
    fn new(w: &mut Weights, cx: Context<'_>, i: usize, n_experts: usize) -> Result<Self> {
        Ok(Layer {
            attention: Attention::new(w, cx, i, QkNorm::PerHead)?,
            ffn_norm: w.vector(cx.header, &dense::name(i, "ffn_norm"), cx.config.d)?,
            experts: Routed::new(w, cx, i, n_experts)?,
        })
    }
}

pub(super) fn build(cx: Context<'_>) -> Result<(Weights, Plan)> {
    let c = cx.config;
    refuse_other_weights(cx)?;
    let Experts { n_experts, n_used } = experts::counts(cx)?;
    let mut w = Weights::default();
    let embedding = dense::embedding(&mut w, cx)?;
    let layers = (0..c.n_layers).map(|i| Layer::new(&mut w, cx, i, n_experts)).collect::<Result<Vec<_>>>()?;
    let (output_norm, head) = dense::head(&mut w, cx, embedding)?;

    let mut b = PlanBuilder::new(&w);
    let attending = Attending::new(&mut b, cx, RopeKind::Neox);
    let x = b.embed(embedding, 1.0);
    for Layer { attention, ffn_norm, experts } in &layers {
        b.begin_layer();
        attention.add(&mut b, &attending, c.eps, x);
        let readers: Vec<_> = experts.readers().collect();
        let h = b.rms_norm(x, *ffn_norm, c.eps, &readers);
        experts.add(&mut b, n_used, h, x);
    }
    let plan = b.finish(x, output_norm, c.eps, head);
    Ok((w, plan))
}

/// Refuses files whose picked experts' weights do not add up to 1.
fn refuse_other_weights(cx: Context<'_>) -> Result<()> {
    let key = "qwen3moe.expert_weights_norm";
    match cx.header.metadata.opt_bool(key)? {
        Some(false) => Err(Error::BadValue {
            key: key.into(),
            found: "false".into(),
            expected: "true: weights that add up to 1".into(),
        }),
        _ => Ok(()),
    }
}
