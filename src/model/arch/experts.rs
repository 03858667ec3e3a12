//! The parts that architectures with a mixture of experts share. Comments give the shapes of weights.

use super::Context;
use super::dense::name;
use crate::error::{Error, Result};
use crate::model::config::{Experts, Keys};
use crate::model::weights::Weights;
use crate::plan::builder::Operand;
use crate::plan::{Activation, BufferId, PlanBuilder, WeightId};

/// The experts of a layer and the router that picks a few a token.
pub(super) struct Routed {
    /// `[n_experts, d]`
    router: WeightId,
    /// `[n_experts, n_ffn, d]` twice, or `[n_experts, 2 n_ffn, d]`
    gate_up: Vec<WeightId>,
    /// `[n_experts, d, n_ffn]`
    down: WeightId,
}

impl Routed {
    /// The weights of layer `i`.
    pub(super) fn new(w: &mut Weights, cx: Context<'_>, i: usize, n_experts: usize) -> Result<Self> {
        let (c, header) = (cx.config, cx.header);
        Ok(Routed {
            router: w.matrix(header, &name(i, "ffn_gate_inp"), n_experts, c.d)?,
            gate_up: gate_up(w, cx, i, n_experts)?,
            down: w.experts(header, &name(i, "ffn_down_exps"), n_experts, c.d, c.n_ffn)?,
        })
    }

    /// The matrices that read the normed state.
    pub(super) fn readers(&self) -> impl Iterator<Item = WeightId> {
        std::iter::once(self.router).chain(self.gate_up.iter().copied())
    }

    /// `x +=` the experts picked, of the normed state `h`.
    pub(super) fn add(&self, b: &mut PlanBuilder<'_>, n_used: usize, h: Operand, x: BufferId) {
        let route = b.route(self.router, h, n_used);
        let gate_up = b.expert_matmul(&self.gate_up, h, route);
        let expert = b.gated_activation(gate_up, Activation::Silu, &[self.down]);
        let y = b.expert_matmul(&[self.down], expert, route);
        b.combine_experts(y, route, x);
    }
}

/// The experts' gates and ups, which a file may hold as one tensor.
fn gate_up(w: &mut Weights, cx: Context<'_>, i: usize, n_experts: usize) -> Result<Vec<WeightId>> {
    let (c, header, both) = (cx.config, cx.header, name(i, "ffn_gate_up_exps"));
    let mut experts = |name: &str, rows| w.experts(header, name, n_experts, rows, c.d);
    match header.tensor(&both) {
        Some(_) => Ok(vec![experts(&both, 2 * c.n_ffn)?]),
        None => Ok(vec![experts(&name(i, "ffn_gate_exps"), c.n_ffn)?, experts(&name(i, "ffn_up_exps"), c.n_ffn)?]),
    }
}

/// How many experts there are and are used; refuses files that scale their weights.
pub(super) fn counts(cx: Context<'_>) -> Result<Experts> {
    let keys = Keys { meta: &cx.header.metadata, architecture: &cx.config.architecture };
    let bad = |key: &str, found: String, expected: &str| {
        Err(Error::BadValue { key: keys.name(key), found, expected: expected.into() })
    };
    match keys.meta.opt_f32(&keys.name("expert_weights_scale"))? {
        None | Some(0.0 | 1.0) => {}
        Some(scale) => return bad("expert_weights_scale", scale.to_string(), "1, or 0 for none"),
    }
    match cx.config.experts {
        Some(experts) => Ok(experts),
        None => bad("expert_count", "none".into(), "the number of experts"),
    }
}
