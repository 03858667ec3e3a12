//! Builds a plan: architectures call these in the order of their paper.

use super::heads::{DeltaHeads, Heads};
use super::label::notes;
use super::memory::assign_buffers;
use super::op::{Activation, BufferId, Op, RopeKind, Shape, WeightId};
use super::{KvShape, KvType, Plan, RopeTable};
use crate::model::weights::{WeightDesc, Weights};

/// An activation in the forms its readers need: quantised for quantised weights, f32 for float weights.
#[derive(Debug, Clone, Copy)]
pub struct Operand {
    q8: Option<BufferId>,
    f32: Option<BufferId>,
}

/// How a layer's queries and keys are prepared for attention.
#[derive(Debug, Clone, Copy)]
pub struct QkPrep {
    /// Per-head norm of the query.
    pub q_norm: Option<WeightId>,
    /// Per-head norm of the key.
    pub k_norm: Option<WeightId>,
    /// Epsilon of the norms.
    pub eps: f32,
    /// Index of the RoPE variant.
    pub rope: usize,
    /// Which elements are paired.
    pub kind: RopeKind,
    /// Softmax scale, usually `head_dim^-0.5`.
    pub scale: f64,
}

/// The weights of a gated delta net layer between its projections.
#[derive(Debug, Clone, Copy)]
pub struct DeltaWeights {
    /// Kernel of the convolution, `[n_channels, kernel]`.
    pub conv: WeightId,
    /// Added to alpha, `[n_value_heads]`.
    pub dt_bias: WeightId,
    /// The decay's rate, `[n_value_heads]`.
    pub rate: WeightId,
    /// Norm of each head's result, `[size]`.
    pub norm: WeightId,
}

/// Collects operations and buffers.
pub struct PlanBuilder<'a> {
    weights: &'a Weights,
    ops: Vec<Op>,
    buffers: Vec<Shape>,
    ropes: Vec<RopeTable>,
    layers: Vec<KvShape>,
    recurrent: Vec<DeltaHeads>,
    layer_starts: Vec<usize>,
    /// Layers that have mixed positions, after which alone they write to the stream.
    written: usize,
}

impl<'a> PlanBuilder<'a> {
    /// An empty plan over `weights`.
    pub fn new(weights: &'a Weights) -> Self {
        PlanBuilder {
            weights,
            ops: Vec::new(),
            buffers: Vec::new(),
            ropes: Vec::new(),
            layers: Vec::new(),
            recurrent: Vec::new(),
            layer_starts: Vec::new(),
            written: 0,
        }
    }

    fn buffer(&mut self, shape: Shape) -> BufferId {
        self.buffers.push(shape);
        BufferId(self.buffers.len() as u32 - 1)
    }

    fn f32(&mut self, width: usize) -> BufferId {
        self.buffer(Shape::f32(width))
    }

    fn desc(&self, id: WeightId) -> &'a WeightDesc {
        self.weights.desc(id)
    }

    /// Registers a RoPE variant and returns its index.
    pub fn rope(&mut self, table: RopeTable) -> usize {
        self.ropes.push(table);
        self.ropes.len() - 1
    }

    /// What follows belongs to the next layer.
    pub fn begin_layer(&mut self) {
        self.layer_starts.push(self.ops.len());
    }

    /// The rows of the token embedding, times `scale`.
    pub fn embed(&mut self, weight: WeightId, scale: f32) -> BufferId {
        let out = self.f32(self.desc(weight).k);
        self.ops.push(Op::Embed { weight, out, scale });
        out
    }

    /// Makes the forms of an activation, `vectors` of `width` values a row, that `readers` need; `emit` writes one form.
    fn operand(
        &mut self,
        vectors: usize,
        width: usize,
        readers: &[WeightId],
        mut emit: impl FnMut(&mut Vec<Op>, BufferId),
    ) -> Operand {
        let quantised = readers.iter().any(|w| self.desc(*w).kind.is_quantised());
        let float = readers.iter().any(|w| !self.desc(*w).kind.is_quantised());
        let q8 = quantised.then(|| self.buffer(Shape::Q8 { vectors, width }));
        let f32 = float.then(|| self.buffer(Shape::F32 { vectors, width }));
        for out in [q8, f32].into_iter().flatten() {
            emit(&mut self.ops, out);
        }
        Operand { q8, f32 }
    }

    /// RMS norm of `x` for the matrices in `readers`.
    pub fn rms_norm(&mut self, x: BufferId, weight: WeightId, eps: f32, readers: &[WeightId]) -> Operand {
        let (width, source) = (self.desc(weight).k, self.source());
        self.operand(1, width, readers, |ops, out| {
            ops.push(Op::RmsNorm { x, weight, out, eps, accumulate: false, source });
        })
    }

    /// `residual += rms_norm(x)`.
    pub fn rms_norm_add(&mut self, x: BufferId, weight: WeightId, eps: f32, residual: BufferId) {
        self.ops.push(Op::RmsNorm { x, weight, out: residual, eps, accumulate: true, source: self.source() });
    }

    /// The last layer that wrote to the stream.
    fn source(&self) -> Option<usize> {
        self.written.checked_sub(1)
    }

    /// The form of an activation that `reader` reads.
    fn form(&self, x: Operand, reader: WeightId) -> BufferId {
        let form = if self.desc(reader).kind.is_quantised() { x.q8 } else { x.f32 };
        form.expect("the operand was made for this reader")
    }

    fn push_matmul(&mut self, weight: WeightId, x: Operand, out: BufferId, out_offset: usize, accumulate: bool) {
        let x = self.form(x, weight);
        self.ops.push(Op::MatMul { weight, x, out, out_offset, accumulate });
    }

    /// The products of all `weights` with `x`, side by side.
    pub fn matmul(&mut self, weights: &[WeightId], x: Operand) -> BufferId {
        let out = self.f32(weights.iter().map(|w| self.desc(*w).rows).sum());
        let mut offset = 0;
        for &weight in weights {
            self.push_matmul(weight, x, out, offset, false);
            offset += self.desc(weight).rows;
        }
        out
    }

    /// `residual += weight · x`.
    pub fn matmul_add(&mut self, weight: WeightId, x: Operand, residual: BufferId) {
        self.push_matmul(weight, x, residual, 0, true);
    }

    /// Causal attention of a new layer over `qkv`, for the output projections in `readers`.
    pub fn attention(&mut self, qkv: BufferId, heads: Heads, prep: QkPrep, readers: &[WeightId]) -> Operand {
        let layer = self.layers.len();
        self.written = self.layer_starts.len();
        let Heads { n_kv_heads, head_dim, .. } = heads;
        self.layers.push(KvShape { n_kv_heads, head_dim, kv: KvType::F16 });
        self.ops.push(Op::RopeAppend {
            qkv,
            q_norm: prep.q_norm,
            k_norm: prep.k_norm,
            eps: prep.eps,
            rope: prep.rope,
            kind: prep.kind,
            heads,
            q_scale: (prep.scale * std::f64::consts::LOG2_E) as f32,
            layer,
        });
        self.operand(1, heads.n_heads * heads.head_dim, readers, |ops, out| {
            ops.push(Op::Attention { qkv, out, heads, layer });
        })
    }

    /// The gated delta net of a new layer over its projections `mixed`, for the output projections in `readers`.
    pub fn delta_net(
        &mut self,
        mixed: BufferId,
        heads: DeltaHeads,
        weights: DeltaWeights,
        eps: f32,
        readers: &[WeightId],
    ) -> Operand {
        let state = self.recurrent.len();
        self.written = self.layer_starts.len();
        self.recurrent.push(heads);
        let DeltaWeights { conv, dt_bias, rate, norm } = weights;
        let (prepared, x) = (self.f32(heads.prepared_width()), self.f32(heads.values_width()));
        self.ops.push(Op::DeltaPrepare { mixed, conv, dt_bias, rate, out: prepared, eps, heads, state });
        self.ops.push(Op::DeltaRule { mixed, prepared, out: x, heads, state });
        self.operand(1, heads.values_width(), readers, |ops, out| {
            ops.push(Op::GatedNorm { x, mixed, weight: norm, out, eps, heads });
        })
    }

    /// `activation(gate) * up`, for the down projections in `readers`.
    pub fn gated_activation(&mut self, gate_up: BufferId, activation: Activation, readers: &[WeightId]) -> Operand {
        let shape = self.buffers[gate_up.0 as usize];
        self.operand(shape.vectors(), shape.width() / 2, readers, |ops, out| {
            ops.push(Op::GatedActivation { gate_up, out, activation });
        })
    }

    /// The `n_used` experts that each row picks by its products with `router`.
    pub fn route(&mut self, router: WeightId, x: Operand, n_used: usize) -> BufferId {
        let logits = self.matmul(&[router], x);
        let out = self.buffer(Shape::F32 { vectors: n_used, width: 2 });
        self.ops.push(Op::Route { logits, out });
        out
    }

    /// The products of `weights`' picked experts with `x`, side by side, a vector for each expert picked.
    pub fn expert_matmul(&mut self, weights: &[WeightId], x: Operand, route: BufferId) -> BufferId {
        let vectors = self.buffers[route.0 as usize].vectors();
        let width = weights.iter().map(|w| self.desc(*w).expert_rows()).sum();
        let out = self.buffer(Shape::F32 { vectors, width });
        let mut out_offset = 0;
        for &weight in weights {
            let (x, n_experts) = (self.form(x, weight), self.desc(weight).n_experts);
            self.ops.push(Op::ExpertMatMul { weight, n_experts, x, route, out, out_offset });
            out_offset += self.desc(weight).expert_rows();
        }
        out
    }

    /// `residual += ` the experts' results `y`, weighted.
    pub fn combine_experts(&mut self, y: BufferId, route: BufferId, residual: BufferId) {
        self.ops.push(Op::CombineExperts { y, route, out: residual });
    }

    /// `residual += sigmoid(gate) * y`, `gate` one value a row.
    pub fn gated_add(&mut self, y: BufferId, gate: BufferId, residual: BufferId) {
        self.ops.push(Op::GatedAdd { y, gate, out: residual });
    }

    /// Ends the body at `hidden` and adds the head and the sampler.
    pub fn finish(mut self, hidden: BufferId, norm: WeightId, eps: f32, head: WeightId) -> Plan {
        let body_len = self.ops.len();
        let x = self.rms_norm(hidden, norm, eps, &[head]);
        let logits = self.matmul(&[head], x);
        let head_ops = self.ops.split_off(body_len);
        let embedding = self.f32(self.desc(norm).k);
        let source = self.source();
        let embedding_ops =
            vec![Op::RmsNorm { x: hidden, weight: norm, out: embedding, eps, accumulate: false, source }];
        let n_vocab = self.desc(head).rows;
        let plan = Plan {
            body: self.ops,
            head: head_ops,
            sample: vec![Op::Sample { logits }],
            embed: embedding_ops,
            buffers: self.buffers,
            hidden,
            logits,
            embedding,
            ropes: self.ropes,
            layers: self.layers,
            recurrent: self.recurrent,
            layer_starts: self.layer_starts,
            weights: notes(self.weights),
            n_vocab,
        };
        assign_buffers(plan)
    }
}
