//! Qwen 3.5, dense: gated delta nets and gated attention, SwiGLU.

use super::Context;
use super::delta_net::{Geometry, Mixer};
use super::dense::{self, FeedForward};
use crate::error::Result;
use crate::model::weights::Weights;
use crate::plan::{HeadOrder, Plan, PlanBuilder};

struct Layer {
    mixer: Mixer,
    feed_forward: FeedForward,
}

impl Layer {
    fn new(w: &mut Weights, cx: Context<'_>, geometry: &Geometry, i: usize) -> Result<Self> {
        Ok(Layer {
            mixer: Mixer::new(w, cx, geometry, i)?,
            feed_forward: FeedForward::new(w, cx, i, "post_attention_norm")?,
        })
    }
}

pub(super) fn build(cx: Context<'_>) -> Result<(Weights, Plan)> {
    let c = cx.config;
    let geometry = Geometry::new(cx, HeadOrder::Tiled)?;
    let mut w = Weights::default();
    let embedding = dense::embedding(&mut w, cx)?;
    let layers = (0..c.n_layers).map(|i| Layer::new(&mut w, cx, &geometry, i)).collect::<Result<Vec<_>>>()?;
    let (output_norm, head) = dense::head(&mut w, cx, embedding)?;

    let mut b = PlanBuilder::new(&w);
    let rope = b.rope(c.rope_table(c.rope_theta, c.rope_factor, cx.rope_divisors));
    let x = b.embed(embedding, 1.0);
    for Layer { mixer, feed_forward } in &layers {
        b.begin_layer();
        mixer.add(&mut b, cx, &geometry, rope, x);
        feed_forward.add(&mut b, c.eps, x);
    }
    let plan = b.finish(x, output_norm, c.eps, head);
    Ok((w, plan))
}
