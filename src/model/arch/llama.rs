//! Llama and its descendants: RMS norm, grouped-query attention with RoPE, SwiGLU.

use super::Context;
use super::dense::{self, Attending, Layer, QkNorm};
use crate::error::Result;
use crate::model::weights::Weights;
use crate::plan::{Plan, PlanBuilder, RopeKind};

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

    let mut b = PlanBuilder::new(&w);
    let attending = Attending::new(&mut b, cx, kind);
    let x = b.embed(embedding, 1.0);
    for Layer { attention, feed_forward } in &layers {
        b.begin_layer();
        attention.add(&mut b, &attending, c.eps, x);
        feed_forward.add(&mut b, c.eps, x);
    }
    let plan = b.finish(x, output_norm, c.eps, head);
    Ok((w, plan))
}
