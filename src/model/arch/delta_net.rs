//! What the architectures with gated delta nets share: three layers of four mix positions by the gated delta rule, every fourth by gated
//! attention. Comments give the shapes of weights.

use super::Context;
use super::dense::name;
use crate::error::{Error, Result};
use crate::model::config::Keys;
use crate::model::weights::Weights;
use crate::plan::builder::{DeltaWeights, QkPrep};
use crate::plan::{BufferId, DeltaHeads, HeadOrder, Heads, PlanBuilder, RopeKind, WeightId};

/// Most value heads, and the widest convolution.
const MAX_HEADS: usize = 1024;
const MAX_KERNEL: usize = 16;
/// Every which layer attends, where the file does not say it.
const ATTENTION_EVERY: usize = 4;

/// How a layer mixes positions.
pub(super) struct Mixer {
    /// `[d]`
    norm: WeightId,
    /// What is read of the normed state, `d` values a row.
    projections: Vec<WeightId>,
    kind: Kind,
    /// `[d, width]`
    output: WeightId,
}

enum Kind {
    Attention {
        /// `[head_dim]`
        q_norm: WeightId,
        /// `[head_dim]`
        k_norm: WeightId,
    },
    DeltaNet(DeltaWeights),
}

/// The hyper-parameters of both kinds of mixers.
pub(super) struct Geometry {
    pub(super) heads: Heads,
    pub(super) delta: DeltaHeads,
    /// By layer.
    is_recurrent: Vec<bool>,
}

impl Geometry {
    /// Reads and checks what the file says of the mixers.
    pub(super) fn new(cx: Context<'_>, order: HeadOrder) -> Result<Self> {
        let c = cx.config;
        let heads =
            Heads { n_heads: c.n_heads, n_kv_heads: c.n_kv_heads, head_dim: c.head_dim, window: None, gated: true };
        let keys = Keys { meta: &cx.header.metadata, architecture: &c.architecture };
        Ok(Geometry { heads, delta: delta_heads(&keys, order)?, is_recurrent: recurrent_layers(&keys, cx)? })
    }
}

fn delta_heads(keys: &Keys<'_>, order: HeadOrder) -> Result<DeltaHeads> {
    let bad = |key: &str, found: usize, expected: &str| {
        Err(Error::BadValue { key: keys.name(key), found: found.to_string(), expected: expected.into() })
    };
    let heads = DeltaHeads {
        n_key_heads: keys.bounded("ssm.group_count", 1..=MAX_HEADS)?,
        n_value_heads: keys.bounded("ssm.time_step_rank", 1..=MAX_HEADS)?,
        size: keys.bounded("ssm.state_size", 32..=256)?,
        kernel: keys.bounded("ssm.conv_kernel", 2..=MAX_KERNEL)?,
        order,
    };
    if !heads.n_value_heads.is_multiple_of(heads.n_key_heads) {
        return bad("ssm.time_step_rank", heads.n_value_heads, "a multiple of the group count");
    }
    if !heads.size.is_multiple_of(32) {
        return bad("ssm.state_size", heads.size, "a multiple of 32");
    }
    match keys.bounded("ssm.inner_size", 1..=MAX_HEADS * 256)? {
        width if width == heads.values_width() => Ok(heads),
        width => bad("ssm.inner_size", width, "the state size times the time step rank"),
    }
}

/// Which layers are recurrent: the file's list, or all but every `full_attention_interval`-th.
fn recurrent_layers(keys: &Keys<'_>, cx: Context<'_>) -> Result<Vec<bool>> {
    let (n, n_drafts) = (cx.config.n_layers, cx.config.n_draft_layers);
    let key = keys.name("attention.recurrent_layers");
    if let Some(listed) = keys.meta.opt_array(&key)?.filter(|listed| !listed.is_empty()) {
        let integers = || Some(listed.u32s()?.map(|v| v != 0).collect::<Vec<_>>());
        let flags = listed.bools().map(Iterator::collect).or_else(integers).unwrap_or_default();
        if flags.len() != n + n_drafts {
            let (found, expected) = (format!("{} flags", flags.len()), format!("{} flags", n + n_drafts));
            return Err(Error::BadValue { key, found, expected });
        }
        return Ok(flags[..n].to_vec());
    }
    let every = match keys.opt("full_attention_interval")? {
        None => ATTENTION_EVERY,
        Some(_) => keys.bounded("full_attention_interval", 1..=n)?,
    };
    Ok((0..n).map(|i| (i + 1) % every != 0).collect())
}

impl Mixer {
    /// The weights of layer `i`.
    pub(super) fn new(w: &mut Weights, cx: Context<'_>, geometry: &Geometry, i: usize) -> Result<Self> {
        let norm = w.vector(cx.header, &name(i, "attn_norm"), cx.config.d)?;
        if geometry.is_recurrent[i] { delta_net(w, cx, geometry.delta, i, norm) } else { attention(w, cx, i, norm) }
    }

    /// Adds the mixer's operations: the stream `x` plus what the mixer makes of it.
    pub(super) fn add(&self, b: &mut PlanBuilder<'_>, cx: Context<'_>, geometry: &Geometry, rope: usize, x: BufferId) {
        let eps = cx.config.eps;
        let h = b.rms_norm(x, self.norm, eps, &self.projections);
        let mixed = b.matmul(&self.projections, h);
        let readers = [self.output];
        let h = match self.kind {
            Kind::Attention { q_norm, k_norm } => {
                let scale = (geometry.heads.head_dim as f64).powf(-0.5);
                let (q_norm, k_norm) = (Some(q_norm), Some(k_norm));
                let prep = QkPrep { q_norm, k_norm, eps, rope, kind: RopeKind::Neox, scale };
                b.attention(mixed, geometry.heads, prep, &readers)
            }
            Kind::DeltaNet(weights) => b.delta_net(mixed, geometry.delta, weights, eps, &readers),
        };
        b.matmul_add(self.output, h, x);
    }
}

fn attention(w: &mut Weights, cx: Context<'_>, i: usize, norm: WeightId) -> Result<Mixer> {
    let (c, header) = (cx.config, cx.header);
    let (q_width, kv_width) = (c.n_heads * c.head_dim, c.n_kv_heads * c.head_dim);
    let (q, k, v) = (name(i, "attn_q"), name(i, "attn_k"), name(i, "attn_v"));
    Ok(Mixer {
        norm,
        projections: w.stack(header, &[(&q, 2 * q_width), (&k, kv_width), (&v, kv_width)], c.d)?,
        kind: Kind::Attention {
            q_norm: w.vector(header, &name(i, "attn_q_norm"), c.head_dim)?,
            k_norm: w.vector(header, &name(i, "attn_k_norm"), c.head_dim)?,
        },
        output: w.matrix(header, &name(i, "attn_output"), c.d, q_width)?,
    })
}

fn delta_net(w: &mut Weights, cx: Context<'_>, heads: DeltaHeads, i: usize, norm: WeightId) -> Result<Mixer> {
    let (d, header, n) = (cx.config.d, cx.header, heads.n_value_heads);
    let name = |part| name(i, part);
    let (qkv, gate) = (name("attn_qkv"), name("attn_gate"));
    let mut projections = vec![(qkv.as_str(), heads.n_channels()), (gate.as_str(), heads.values_width())];
    let (both, beta, alpha) = (name("ssm_ba"), name("ssm_beta"), name("ssm_alpha"));
    match heads.order {
        HeadOrder::Tiled => projections.extend([(beta.as_str(), n), (alpha.as_str(), n)]),
        HeadOrder::Grouped => projections.push((both.as_str(), 2 * n)),
    }
    Ok(Mixer {
        norm,
        projections: w.stack(header, &projections, d)?,
        kind: Kind::DeltaNet(DeltaWeights {
            conv: w.table(header, &name("ssm_conv1d"), heads.n_channels(), heads.kernel)?,
            dt_bias: w.vector(header, &format!("blk.{i}.ssm_dt.bias"), n)?,
            rate: w.vector(header, &format!("blk.{i}.ssm_a"), n)?,
            norm: w.vector(header, &name("ssm_norm"), heads.size)?,
        }),
        output: w.matrix(header, &name("ssm_out"), d, heads.values_width())?,
    })
}
