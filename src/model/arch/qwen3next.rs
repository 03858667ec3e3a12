//! Qwen 3 Next, and Qwen 3.5 with a mixture of experts: gated delta nets and gated attention; a router picks a few experts a token, beside
//! which one shared expert runs always, as far as a gate of its own lets it.

use super::Context;
use super::delta_net::{Geometry, Mixer};
use super::dense::{self, name};
use super::experts::{self, Routed};
use crate::error::Result;
use crate::model::config::{Experts, Keys};
use crate::model::weights::Weights;
use crate::plan::{Activation, HeadOrder, Plan, PlanBuilder, WeightId};

struct Layer {
    mixer: Mixer,
    /// `[d]`
    ffn_norm: WeightId,
    experts: Routed,
    /// `[1, d]`
    shared_gate: WeightId,
    /// `[n_shared, d]` twice
    shared_gate_up: Vec<WeightId>,
    /// `[d, n_shared]`
    shared_down: WeightId,
}

impl Layer {
    fn new(w: &mut Weights, cx: Context<'_>, geometry: &Geometry, n_experts: usize, i: usize) -> Result<Self> {
        let (c, header) = (cx.config, cx.header);
        let name = |part: &str| name(i, part);
        let n_shared = shared_width(cx)?;
        Ok(Layer {
            mixer: Mixer::new(w, cx, geometry, i)?,
            ffn_norm: w.vector(header, &name("post_attention_norm"), c.d)?,
            experts: Routed::new(w, cx, i, n_experts)?,
            shared_gate: w.matrix(header, &name("ffn_gate_inp_shexp"), 1, c.d)?,
            shared_gate_up: w.stack(
                header,
                &[(&name("ffn_gate_shexp"), n_shared), (&name("ffn_up_shexp"), n_shared)],
                c.d,
            )?,
            shared_down: w.matrix(header, &name("ffn_down_shexp"), c.d, n_shared)?,
        })
    }
}

pub(super) fn build(cx: Context<'_>) -> Result<(Weights, Plan)> {
    decoder(cx, HeadOrder::Grouped)
}

/// Qwen 3.5 with a mixture of experts.
pub(super) fn build_qwen35moe(cx: Context<'_>) -> Result<(Weights, Plan)> {
    decoder(cx, HeadOrder::Tiled)
}

fn decoder(cx: Context<'_>, order: HeadOrder) -> Result<(Weights, Plan)> {
    let c = cx.config;
    let (geometry, Experts { n_experts, n_used }) = (Geometry::new(cx, order)?, experts::counts(cx)?);
    let mut w = Weights::default();
    let embedding = dense::embedding(&mut w, cx)?;
    let layers =
        (0..c.n_layers).map(|i| Layer::new(&mut w, cx, &geometry, n_experts, i)).collect::<Result<Vec<_>>>()?;
    let (output_norm, head) = dense::head(&mut w, cx, embedding)?;

    let mut b = PlanBuilder::new(&w);
    let rope = b.rope(c.rope_table(c.rope_theta, c.rope_factor, cx.rope_divisors));
    let x = b.embed(embedding, 1.0);
    for layer in &layers {
        b.begin_layer();

        layer.mixer.add(&mut b, cx, &geometry, rope, x);
        let mut readers: Vec<_> = layer.experts.readers().chain([layer.shared_gate]).collect();
        readers.extend(&layer.shared_gate_up);
        let h = b.rms_norm(x, layer.ffn_norm, c.eps, &readers);
        layer.experts.add(&mut b, n_used, h, x);
        let gate = b.matmul(&[layer.shared_gate], h);
        let gate_up = b.matmul(&layer.shared_gate_up, h);
        let shared = b.gated_activation(gate_up, Activation::Silu, &[layer.shared_down]);
        let y = b.matmul(&[layer.shared_down], shared);
        b.gated_add(y, gate, x);
    }
    let plan = b.finish(x, output_norm, c.eps, head);
    Ok((w, plan))
}

/// Width of the shared expert; a file that does not give it has one as wide as a dense layer's feed-forward part.
fn shared_width(cx: Context<'_>) -> Result<usize> {
    let keys = Keys { meta: &cx.header.metadata, architecture: &cx.config.architecture };
    match keys.opt("expert_shared_feed_forward_length")? {
        None | Some(0) => keys.width("feed_forward_length"),
        Some(_) => keys.width("expert_shared_feed_forward_length"),
    }
}
