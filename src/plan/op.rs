//! The operations of a decode step, as data.
//!
//! A plan is a list of these over numbered buffers. Every operation works on `rows` tokens at once: one while
//! decoding, a chunk while prefilling. Buffers are row-major f32 `[rows, width]` unless said otherwise. Each operation
//! has the same stem everywhere: `Op::RmsNorm`, `src/cpu/rms_norm.rs`, `shaders/rms_norm.wgsl`.

use super::heads::{DeltaHeads, Heads};

/// A buffer of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub u32);

/// A weight of the model: an index into `Weights`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WeightId(pub u32);

/// What a buffer holds a row: one vector, or one for each expert that the row picked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// f32.
    F32 {
        /// Vectors a row.
        vectors: usize,
        /// Values a vector.
        width: usize,
    },
    /// Quantised activations, each vector by itself: int8 blocks of 32, scales, sums (docs/numerics.md).
    Q8 {
        /// Vectors a row.
        vectors: usize,
        /// Values a vector, a multiple of 32.
        width: usize,
    },
}

impl Shape {
    /// One vector of `width` f32 a row.
    pub fn f32(width: usize) -> Self {
        Shape::F32 { vectors: 1, width }
    }

    /// One quantised vector of `width` values a row.
    pub fn q8(width: usize) -> Self {
        Shape::Q8 { vectors: 1, width }
    }

    /// Values a vector.
    pub fn width(self) -> usize {
        match self {
            Shape::F32 { width, .. } | Shape::Q8 { width, .. } => width,
        }
    }

    /// Vectors a row.
    pub fn vectors(self) -> usize {
        match self {
            Shape::F32 { vectors, .. } | Shape::Q8 { vectors, .. } => vectors,
        }
    }
}

/// How gate and up are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// `silu(gate) * up`
    Silu,
    /// `gelu_tanh(gate) * up`
    GeluTanh,
}

/// Which elements RoPE pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopeKind {
    /// Neighbours `2i, 2i+1` (llama files).
    Norm,
    /// Halves `i, i + n_rot/2` (gemma, qwen files).
    Neox,
}

/// One operation. `out` is written, all other buffers are read; they are never the same one, except where
/// `accumulate` or the text says so.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// `out[r] = dequantise(weight[token[r]]) * scale`.
    Embed {
        /// `[n_vocab, width]`.
        weight: WeightId,
        /// `[rows, width]`.
        out: BufferId,
        /// Multiplier; 1 leaves the row alone.
        scale: f32,
    },
    /// `out = rms_norm(x) * weight`, or `out += ...` where `accumulate` is set.
    RmsNorm {
        /// `[rows, width]`.
        x: BufferId,
        /// `[width]`, f32.
        weight: WeightId,
        /// `[rows, width]`, f32 or Q8 (f32 where `accumulate` is set).
        out: BufferId,
        /// Adds to `out` instead of replacing it: a residual connection.
        accumulate: bool,
        /// Added to the mean square.
        eps: f32,
        /// The layer whose result `x` holds, `None` for the embedding: what the guard names where `x` is not finite.
        source: Option<usize>,
    },
    /// `out[.., out_offset + j] = weight[j] · x`, or `+=` where `accumulate` is set (`out + product`, in this order).
    MatMul {
        /// `[width, n_out]`.
        weight: WeightId,
        /// `[rows, K]`: Q8 for quantised weights, f32 for float weights.
        x: BufferId,
        /// `[rows, out width]`, f32.
        out: BufferId,
        /// First column written.
        out_offset: usize,
        /// Adds to `out` instead of replacing it: a residual connection.
        accumulate: bool,
    },
    /// Norms (where weights are given) and rotates the query and key heads of `qkv`; writes the query back into `qkv`, scaled and
    /// rounded to 11 bits for attention, and appends key and value to the cache, stored as the layer's `KvShape` says.
    RopeAppend {
        /// `[rows, row width]`: q, k, v, each head of q followed by its gate where heads are gated; q is replaced.
        qkv: BufferId,
        /// Per-head norm of q, `[head_dim]`.
        q_norm: Option<WeightId>,
        /// Per-head norm of k, `[head_dim]`.
        k_norm: Option<WeightId>,
        /// Epsilon of both norms.
        eps: f32,
        /// Index into the plan's RoPE tables.
        rope: usize,
        /// Which elements are paired.
        kind: RopeKind,
        /// Geometry.
        heads: Heads,
        /// Multiplier of the query (softmax scale times log2 e).
        q_scale: f32,
        /// Index into the plan's caches.
        layer: usize,
    },
    /// Scores, softmax and weighted values of the rows' queries over the cache, as partial results a chunk range, then merged;
    /// times the sigmoid of the gate where heads are gated.
    Attention {
        /// The buffer `RopeAppend` prepared.
        qkv: BufferId,
        /// `[rows, n_heads head_dim]`, f32 or Q8.
        out: BufferId,
        /// Geometry.
        heads: Heads,
        /// Index into the plan's caches.
        layer: usize,
    },
    /// What the delta rule reads of a row: queries, keys and values after the causal convolution and SiLU, queries and keys at unit
    /// length (queries divided by the root of `size`, too), the betas and the decays of the value heads.
    DeltaPrepare {
        /// `[rows, mixed width]`: the layer's projections.
        mixed: BufferId,
        /// `[n_channels, kernel]`, f32.
        conv: WeightId,
        /// `[n_value_heads]`: added to alpha.
        dt_bias: WeightId,
        /// `[n_value_heads]`: the decay's rate, negative.
        rate: WeightId,
        /// `[rows, prepared width]`, f32.
        out: BufferId,
        /// Added to a head's sum of squares.
        eps: f32,
        /// Geometry.
        heads: DeltaHeads,
        /// Index into the plan's recurrent states, whose ring is read.
        state: usize,
    },
    /// The gated delta rule, row after row. It advances the layer's recurrent state: the states of the heads and the ring.
    DeltaRule {
        /// The rows that `DeltaPrepare` read; their channels go to the ring.
        mixed: BufferId,
        /// The rows that `DeltaPrepare` wrote.
        prepared: BufferId,
        /// `[rows, n_value_heads size]`, f32.
        out: BufferId,
        /// Geometry.
        heads: DeltaHeads,
        /// Index into the plan's recurrent states.
        state: usize,
    },
    /// `out = rms_norm(x) * weight * silu(gate)`, each head by itself.
    GatedNorm {
        /// `[rows, n_value_heads size]`.
        x: BufferId,
        /// The layer's projections, which hold the gates after the channels.
        mixed: BufferId,
        /// `[size]`, f32.
        weight: WeightId,
        /// `[rows, n_value_heads size]`, f32 or Q8.
        out: BufferId,
        /// Added to the mean square.
        eps: f32,
        /// Geometry.
        heads: DeltaHeads,
    },
    /// `out = activation(gate_up[.., ..width]) * gate_up[.., width..]`, every vector.
    GatedActivation {
        /// `[rows, vectors, 2 width]`.
        gate_up: BufferId,
        /// `[rows, vectors, width]`, f32 or Q8.
        out: BufferId,
        /// Which.
        activation: Activation,
    },
    /// Picks the experts of each row: those of the largest logits, and the softmax over these as their weights.
    Route {
        /// `[rows, n_experts]`, f32.
        logits: BufferId,
        /// `[rows, n_used, 2]`: the expert's id (u32 bits) and its weight (f32), the largest weight first.
        out: BufferId,
    },
    /// `out[r, p, out_offset + j] = weight[expert[r, p] * n_rows + j] · x[r, p]`, n_rows being the rows of one expert.
    ExpertMatMul {
        /// `[width, n_experts * n_rows]`, one expert after another.
        weight: WeightId,
        /// Experts of the weight.
        n_experts: usize,
        /// `[rows, K]`, read by all experts of a row, or `[rows, n_used, K]`; Q8 for quantised weights, f32 for float weights.
        x: BufferId,
        /// The buffer `Route` wrote.
        route: BufferId,
        /// `[rows, n_used, out width]`, f32.
        out: BufferId,
        /// First column written.
        out_offset: usize,
    },
    /// `out[r] += Σ weight[r, p] * y[r, p]`, summed in the order of p before it is added.
    CombineExperts {
        /// `[rows, n_used, width]`, f32.
        y: BufferId,
        /// The buffer `Route` wrote.
        route: BufferId,
        /// `[rows, width]`, f32.
        out: BufferId,
    },
    /// `out[r] += sigmoid(gate[r]) * y[r]`.
    GatedAdd {
        /// `[rows, width]`.
        y: BufferId,
        /// `[rows, 1]`.
        gate: BufferId,
        /// `[rows, width]`, f32.
        out: BufferId,
    },
    /// Draws a token from one row of logits and advances the sequence's state.
    Sample {
        /// `[1, n_vocab]`, f32.
        logits: BufferId,
    },
}

impl Op {
    /// The stem of its files.
    pub fn label(&self) -> &'static str {
        match self {
            Op::Embed { .. } => "embed",
            Op::RmsNorm { .. } => "rms_norm",
            Op::MatMul { .. } => "matmul",
            Op::RopeAppend { .. } => "rope_append",
            Op::Attention { .. } => "attention",
            Op::DeltaPrepare { .. } => "delta_prepare",
            Op::DeltaRule { .. } => "delta_rule",
            Op::GatedNorm { .. } => "gated_norm",
            Op::GatedActivation { .. } => "gated_activation",
            Op::Route { .. } => "route",
            Op::ExpertMatMul { .. } => "expert_matmul",
            Op::CombineExperts { .. } => "combine_experts",
            Op::GatedAdd { .. } => "gated_add",
            Op::Sample { .. } => "sample",
        }
    }

    /// The buffer written; `None` for the sampler, which writes the sequence's state.
    pub fn out(&self) -> Option<BufferId> {
        match *self {
            Op::Embed { out, .. } | Op::RmsNorm { out, .. } | Op::MatMul { out, .. } => Some(out),
            Op::RopeAppend { qkv, .. } => Some(qkv),
            Op::Attention { out, .. } | Op::GatedActivation { out, .. } => Some(out),
            Op::DeltaPrepare { out, .. } | Op::DeltaRule { out, .. } | Op::GatedNorm { out, .. } => Some(out),
            Op::GatedAdd { out, .. } => Some(out),
            Op::Route { out, .. } | Op::ExpertMatMul { out, .. } | Op::CombineExperts { out, .. } => Some(out),
            Op::Sample { .. } => None,
        }
    }

    /// Weights read.
    pub fn weights(&self) -> Vec<WeightId> {
        match *self {
            Op::Embed { weight, .. } | Op::RmsNorm { weight, .. } => vec![weight],
            Op::MatMul { weight, .. } | Op::ExpertMatMul { weight, .. } => vec![weight],
            Op::RopeAppend { q_norm, k_norm, .. } => [q_norm, k_norm].into_iter().flatten().collect(),
            Op::DeltaPrepare { conv, dt_bias, rate, .. } => vec![conv, dt_bias, rate],
            Op::GatedNorm { weight, .. } => vec![weight],
            Op::DeltaRule { .. } | Op::Attention { .. } => Vec::new(),
            Op::GatedActivation { .. } | Op::Sample { .. } => Vec::new(),
            Op::Route { .. } | Op::CombineExperts { .. } | Op::GatedAdd { .. } => Vec::new(),
        }
    }
}
