//! Qwen 3.5, dense: gated delta nets and gated attention, SwiGLU.

use super::Context;
use super::delta_net::{Geometry, Mixer};
use super::dense::{self, name};
use crate::error::Result;
use crate::model::weights::Weights;
use crate::plan::{Activation, HeadOrder, Plan, PlanBuilder, WeightId};

struct Layer {
    mixer: Mixer,
    /// `[d]`
    ffn_norm: WeightId,
    /// `[n_ffn, d]` twice
    gate_up: Vec<WeightId>,
    /// `[d, n_ffn]`
    down: WeightId,
}

impl Layer {
    fn new(w: &mut Weights, cx: Context<'_>, geometry: &Geometry, i: usize) -> Result<Self> {
        let (c, header) = (cx.config, cx.header);
        Ok(Layer {
            mixer: Mixer::new(w, cx, geometry, i)?,
            ffn_norm: w.vector(header, &name(i, "post_attention_norm"), c.d)?,
            gate_up: w.stack(header, &[(&name(i, "ffn_gate"), c.n_ffn), (&name(i, "ffn_up"), c.n_ffn)], c.d)?,
            down: w.matrix(header, &name(i, "ffn_down"), c.d, c.n_ffn)?,
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
    for Layer { mixer, ffn_norm, gate_up, down } in &layers {
        b.begin_layer();

        mixer.add(&mut b, cx, &geometry, rope, x);
        let h = b.rms_norm(x, *ffn_norm, c.eps, gate_up);
        let gate_up = b.matmul(gate_up, h);
        let h = b.gated_activation(gate_up, Activation::Silu, &[*down]);
        b.matmul_add(*down, h, x);
    }
    let plan = b.finish(x, output_norm, c.eps, head);
    Ok((w, plan))
}
