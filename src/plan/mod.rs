//! A model's decode step as data: operations over numbered buffers, built once and interpreted by every backend.

pub mod builder;
mod heads;
mod kv;
mod label;
mod memory;
pub mod op;

pub use builder::PlanBuilder;
pub use heads::{DeltaHeads, HeadOrder, Heads};
pub use kv::{KV_BLOCK, KvShape, KvType};
pub use label::{Tag, WeightNote};
pub use op::{Activation, BufferId, Op, RopeKind, Shape, WeightId};

use crate::error::{Error, Result};

/// Positions a KV page holds; also the keys of one attention chunk.
pub const PAGE: usize = 64;
/// Attention chunks merged one after another before their group joins the total.
pub const CHUNKS_PER_GROUP: usize = 32;

/// Rotation angles of one RoPE variant: the angle of pair `i` at position `p` is `p * frequencies[i]`.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeTable {
    /// Radians a position, one a pair; half as many as rotated values a head.
    pub frequencies: Vec<f64>,
    /// Multiplier of both sine and cosine.
    pub magnitude: f64,
}

impl RopeTable {
    /// `[cos, sin]` pairs of `n_positions` positions, `[n_positions, pairs, 2]`, computed in f64 and rounded.
    pub fn values(&self, n_positions: usize) -> Vec<f32> {
        let mut out = Vec::with_capacity(n_positions * self.frequencies.len() * 2);
        for position in 0..n_positions {
            for frequency in &self.frequencies {
                let angle = position as f64 * frequency;
                out.push((libm::cos(angle) * self.magnitude) as f32);
                out.push((libm::sin(angle) * self.magnitude) as f32);
            }
        }
        out
    }
}

/// One of a plan's lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum List {
    /// Token ids to hidden states.
    Body,
    /// Hidden state to logits.
    Head,
    /// Logits to the next token.
    Sample,
}

/// A model's step.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Token ids to hidden states, every row.
    pub body: Vec<Op>,
    /// Hidden state to logits, one row: reads `hidden`, writes `logits`.
    pub head: Vec<Op>,
    /// Logits to the next token and the advanced state, one row.
    pub sample: Vec<Op>,
    /// Hidden state to embedding, one row: reads `hidden`, writes `embedding`.
    pub embed: Vec<Op>,
    /// What each buffer holds a row, indexed by `BufferId`.
    pub buffers: Vec<Shape>,
    /// Output of `body`, `[rows, d]`.
    pub hidden: BufferId,
    /// Output of `head`, `[1, n_vocab]`.
    pub logits: BufferId,
    /// Output of `embed`, `[1, d]`: the hidden state after the output norm.
    pub embedding: BufferId,
    /// RoPE variants.
    pub ropes: Vec<RopeTable>,
    /// Cache geometry of the layers with attention, in order.
    pub layers: Vec<KvShape>,
    /// Geometry of the recurrent layers, in order.
    pub recurrent: Vec<DeltaHeads>,
    /// Index in `body` of each layer's first operation.
    pub layer_starts: Vec<usize>,
    /// What reports say of the weights, indexed by `WeightId`.
    pub weights: Vec<WeightNote>,
    /// Vocabulary size.
    pub n_vocab: usize,
}

impl Plan {
    /// The operations of a list.
    pub fn list(&self, list: List) -> &[Op] {
        match list {
            List::Body => &self.body,
            List::Head => &self.head,
            List::Sample => &self.sample,
        }
    }

    /// Bytes of one page's keys and values of every layer.
    pub fn page_bytes(&self) -> usize {
        self.layers.iter().map(|layer| 2 * layer.page_bytes()).sum()
    }

    /// Bytes of one sequence's recurrent states: every layer's states and ring.
    pub fn state_bytes(&self) -> usize {
        self.recurrent.iter().map(|heads| 4 * (heads.states_len() + heads.ring_len())).sum()
    }

    /// The shape of a buffer.
    pub fn shape(&self, id: BufferId) -> Shape {
        self.buffers[id.0 as usize]
    }

    /// Checks that every weight the plan reads is there.
    ///
    /// # Errors
    /// `BadTensor` names the first that is not.
    pub(crate) fn check_weights(&self, has: impl Fn(WeightId) -> bool) -> Result<()> {
        let ops = self.body.iter().chain(&self.head).chain(&self.embed);
        match ops.flat_map(Op::weights).find(|id| !has(*id)) {
            None => Ok(()),
            Some(id) => Err(Error::BadTensor {
                tensor: format!("weight {} of the plan", id.0),
                found: "not on the device".into(),
                expected: "loaded before the backend is made".into(),
            }),
        }
    }

    /// Layers of any kind.
    pub fn n_layers(&self) -> usize {
        self.layer_starts.len()
    }

    /// The layer that operation `at` of `body` belongs to; `None` for the embedding.
    pub fn layer_of(&self, at: usize) -> Option<usize> {
        self.layer_starts.partition_point(|start| *start <= at).checked_sub(1)
    }
}
