//! Turns the operations of a plan into steps: kernels, parameters, bindings.

mod delta_net;
mod experts;

use super::driver::{Buffer, Draft, Usage};
use bytemuck::{Pod, bytes_of};

use super::buffers::Allocator;
use super::device::Gpu;
use super::kernels::{Kernel, MatMulForm, Output};
use super::params::{self, SLOT};
use super::recorder::{Grid, Step, visible_units};
use super::sampler::Bound;
use super::sequence::Sequence;
use super::weights::GpuWeights;
use crate::error::{Error, Result};
use crate::numerics::Segments;
use crate::plan::{Activation, BufferId, CHUNKS_PER_GROUP, Heads, Op, PAGE, Plan, RopeKind, Shape, Tag, WeightId};

/// Values of a head the kernels have room for: `MAX_HEAD_DIM` of the shaders.
const MAX_HEAD_DIM: usize = 256;
/// Query heads of one attention workgroup: `HEADS` of the shader.
const HEADS_A_GROUP: usize = 4;

/// A buffer of the plan on the device.
#[derive(Debug, Clone)]
pub(crate) enum PlanBuffer {
    /// `[rows, vectors, width]`
    F32 { vectors: usize, width: usize, values: Buffer },
    /// int8 blocks and their scales and sums, vector by vector.
    Q8 { vectors: usize, width: usize, q: Buffer, s: Buffer },
}

impl PlanBuffer {
    fn new(allocator: &mut Allocator, shape: Shape, rows: usize) -> Self {
        match shape {
            Shape::F32 { vectors, width } => {
                let values = allocator.buffer("activations", (rows * vectors * width * 4) as u64, Usage::Storage);
                PlanBuffer::F32 { vectors, width, values }
            }
            Shape::Q8 { vectors, width } => {
                let places = rows * vectors * Segments::of(width).places();
                let q = allocator.buffer("activations", (places * 32) as u64, Usage::Storage);
                let s = allocator.buffer("activations", (places * 8) as u64, Usage::Storage);
                PlanBuffer::Q8 { vectors, width, q, s }
            }
        }
    }

    /// The values of an f32 buffer.
    pub(crate) fn f32(&self) -> &Buffer {
        match self {
            PlanBuffer::F32 { values, .. } => values,
            PlanBuffer::Q8 { .. } => unreachable!("the plan reads f32 here"),
        }
    }

    /// Bytes of a row of an f32 buffer.
    pub(crate) fn row_bytes(&self) -> u64 {
        4 * (self.vectors() * self.width()) as u64
    }

    /// Values a vector.
    fn width(&self) -> usize {
        match self {
            PlanBuffer::F32 { width, .. } | PlanBuffer::Q8 { width, .. } => *width,
        }
    }

    /// Vectors a row.
    fn vectors(&self) -> usize {
        match self {
            PlanBuffer::F32 { vectors, .. } | PlanBuffer::Q8 { vectors, .. } => *vectors,
        }
    }

    /// Kernel output form, and its bindings 10 and 11.
    fn output(&self, accumulate: bool) -> (Output, Vec<(u32, Buffer)>) {
        match self {
            PlanBuffer::F32 { values, .. } => {
                (if accumulate { Output::Add } else { Output::F32 }, vec![(10, values.clone())])
            }
            PlanBuffer::Q8 { q, s, .. } => (Output::Q8, vec![(10, q.clone()), (11, s.clone())]),
        }
    }

    /// Bindings 4 and 5 of a product with it.
    fn factor(&self) -> Vec<(u32, Buffer)> {
        match self {
            PlanBuffer::F32 { values, .. } => vec![(4, values.clone())],
            PlanBuffer::Q8 { q, s, .. } => vec![(4, q.clone()), (5, s.clone())],
        }
    }

    /// Segments of a vector's blocks and blocks a segment; only int8 outputs have a use for them.
    fn segments(&self) -> (u32, u32) {
        match self {
            PlanBuffer::F32 { .. } => (1, 1),
            PlanBuffer::Q8 { width, .. } => {
                let segments = Segments::of(*width);
                (segments.count as u32, segments.len as u32)
            }
        }
    }
}

/// Buffers of the plan for a number of rows.
#[derive(Clone)]
pub(crate) struct Space {
    /// By id; `None` where no operation uses one.
    pub(crate) buffers: Vec<Option<PlanBuffer>>,
    /// Where the tokens that `embed` reads lie.
    pub(crate) tokens: Buffer,
    /// Attention's partial results, for the widest layer.
    pub(crate) partials: Buffer,
}

impl Space {
    /// The buffers that `ops` use, for `rows` rows; `partials` bytes for attention's partial results.
    pub(crate) fn new(
        allocator: &mut Allocator,
        plan: &Plan,
        rows: usize,
        ops: &[&[Op]],
        tokens: &Buffer,
        partials: u64,
    ) -> Self {
        let mut buffers = vec![None; plan.buffers.len()];
        for op in ops.iter().flat_map(|ops| ops.iter()) {
            for id in op.clone().buffers_mut() {
                let at = id.0 as usize;
                buffers[at].get_or_insert_with(|| PlanBuffer::new(allocator, plan.buffers[at], rows));
            }
        }
        Space {
            buffers,
            tokens: tokens.clone(),
            partials: allocator.buffer("attention partials", partials, Usage::Storage),
        }
    }

    /// The buffer `id`, which some operation uses.
    pub(crate) fn buffer(&self, id: BufferId) -> PlanBuffer {
        self.buffers[id.0 as usize].clone().expect("every buffer of the operations was made")
    }
}

/// How an instance shares its rows out; the bits are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spread {
    /// Rows of x a matmul workgroup computes.
    pub(crate) tile: u32,
    /// Chunks of a unit of attention: 1 or a group's. Others would merge chunks in another order than the contract's.
    pub(crate) chunks_per_unit: usize,
    /// Whether the rows are those of one sequence.
    pub(crate) is_chunk: bool,
}

impl Spread {
    /// Of a chunk of a prompt in tiles of `tile` rows: a unit is a group, so that partial results stay small.
    pub(crate) const fn chunk(tile: u32) -> Self {
        Spread { tile, chunks_per_unit: CHUNKS_PER_GROUP, is_chunk: true }
    }

    /// Of one row: every chunk is a unit, so that chunks run side by side.
    pub(crate) const SINGLE: Spread = Spread { tile: 1, chunks_per_unit: 1, is_chunk: false };

    /// Of a step of several sequences in tiles of `tile` rows, in an instance with room for `max_rows`: every chunk is a unit where partial
    /// results of a reasonable size allow it.
    pub(crate) fn of_batch(tile: u32, max_rows: usize, ops: &[Op], n_ctx: usize) -> Self {
        if tile == 1 {
            return Spread::SINGLE;
        }
        let fits = partials_bytes(ops, max_rows, n_ctx, 1) <= MAX_PARTIALS_BYTES;
        Spread { tile, chunks_per_unit: if fits { 1 } else { CHUNKS_PER_GROUP }, is_chunk: false }
    }
}

/// Bytes that attention's partial results may have where smaller units need more.
const MAX_PARTIALS_BYTES: u64 = 128 << 20;

/// Lowers operations for instances.
pub(crate) struct Lowering<'a> {
    pub(crate) gpu: &'a Gpu,
    pub(crate) plan: &'a Plan,
    pub(crate) weights: &'a GpuWeights,
    pub(crate) sequence: &'a Sequence,
    form: MatMulForm,
    spread: Spread,
    space: &'a Space,
    /// Whether the head is lowered, whose logits go to the rows' slots.
    in_head: bool,
    drafts: Vec<Draft>,
    /// Where the steps of each operation of the list lowered last end.
    ends: Vec<usize>,
    /// The operation being lowered.
    tag: Tag,
}

/// Units a row sees at most.
pub(super) fn max_units(window: Option<usize>, per_unit: usize, n_ctx: usize) -> usize {
    let all = visible_units(n_ctx - 1, 0, per_unit);
    // A window may begin and end inside a unit.
    window.map_or(all, |w| all.min(w / PAGE / per_unit + 2))
}

/// Bytes of attention's partial results for `rows` rows, for the widest layer.
pub(crate) fn partials_bytes(ops: &[Op], rows: usize, n_ctx: usize, per_unit: usize) -> u64 {
    let bytes = |op: &Op| match op {
        Op::Attention { heads, .. } => {
            rows * max_units(heads.window, per_unit, n_ctx) * heads.n_heads * (heads.head_dim + 2) * 4
        }
        _ => 0,
    };
    ops.iter().map(bytes).max().unwrap_or(0) as u64
}

impl<'a> Lowering<'a> {
    /// A lowering to the buffers of `space`.
    pub(crate) fn new(
        gpu: &'a Gpu,
        plan: &'a Plan,
        weights: &'a GpuWeights,
        sequence: &'a Sequence,
        form: MatMulForm,
        spread: Spread,
        space: &'a Space,
    ) -> Self {
        let (drafts, ends, tag) = (Vec::new(), Vec::new(), Tag::of("", ""));
        Lowering { gpu, plan, weights, sequence, form, spread, space, in_head: false, drafts, ends, tag }
    }

    fn buffer(&self, id: BufferId) -> PlanBuffer {
        self.space.buffer(id)
    }

    /// Where the steps of each operation of the list lowered last end.
    pub(crate) fn ends(&self) -> Vec<usize> {
        self.ends.clone()
    }

    /// Steps of operations that belong to no layer: uploads their parameters and binds everything.
    pub(crate) fn steps(&mut self, allocator: &mut Allocator, ops: &[Op]) -> Result<Vec<Step>> {
        self.bind(allocator, ops, self.plan.tags(ops, false))
    }

    /// Steps of the plan's body.
    pub(crate) fn body(&mut self, allocator: &mut Allocator) -> Result<Vec<Step>> {
        self.bind(allocator, &self.plan.body, self.plan.tags(&self.plan.body, true))
    }

    /// Steps of the plan's head.
    pub(crate) fn head(&mut self, allocator: &mut Allocator) -> Result<Vec<Step>> {
        self.in_head = true;
        let steps = self.steps(allocator, &self.plan.head);
        self.in_head = false;
        steps
    }

    fn bind(&mut self, allocator: &mut Allocator, ops: &[Op], tags: Vec<Tag>) -> Result<Vec<Step>> {
        self.ends.clear();
        for (op, tag) in ops.iter().zip(tags) {
            self.tag = tag;
            self.lower(op)?;
            self.ends.push(self.drafts.len());
        }
        let drafts = std::mem::take(&mut self.drafts);
        let mut slots = vec![0; drafts.len() * SLOT as usize];
        for (slot, draft) in slots.chunks_exact_mut(SLOT as usize).zip(&drafts) {
            slot[..draft.params.len()].copy_from_slice(&draft.params);
        }
        let uniforms = allocator.filled("parameters", &slots, Usage::Uniform);
        Ok(drafts.iter().enumerate().map(|(i, draft)| Step::new(self.gpu, draft, &uniforms, i)).collect())
    }

    fn push<P: Pod>(&mut self, kernel: Kernel, params: P, bindings: Vec<(u32, Buffer)>, grid: Grid) {
        let tag = Tag { op: kernel.stem(), ..self.tag.clone() };
        self.drafts.push(Draft { kernel, params: bytes_of(&params).to_vec(), bindings, grid, tag });
    }

    fn lower(&mut self, op: &Op) -> Result<()> {
        match *op {
            Op::Embed { weight, out, scale } => self.embed(weight, out, scale),
            Op::RmsNorm { x, weight, out, accumulate, eps, source } => {
                self.rms_norm(x, weight, out, accumulate, eps, source);
            }
            Op::MatMul { weight, x, out, out_offset, accumulate } => {
                self.matmul(weight, x, out, out_offset, accumulate);
            }
            Op::RopeAppend { .. } => return self.rope_append(op),
            Op::Attention { qkv, out, heads, layer } => self.attention(qkv, out, heads, layer),
            Op::GatedActivation { gate_up, out, activation } => self.gated_activation(gate_up, out, activation),
            Op::DeltaPrepare { .. } => self.delta_prepare(op),
            Op::DeltaRule { mixed, prepared, out, heads, state } => self.delta_rule(mixed, prepared, out, heads, state),
            Op::GatedNorm { .. } => self.gated_norm(op),
            Op::GatedAdd { y, gate, out } => self.gated_add(y, gate, out),
            Op::Route { logits, out } => self.route(logits, out),
            Op::ExpertMatMul { .. } => self.expert_matmul(op),
            Op::CombineExperts { y, route, out } => self.combine_experts(y, route, out),
            Op::Sample { logits } => self.sample(logits),
        }
        Ok(())
    }

    fn embed(&mut self, weight: WeightId, out: BufferId, scale: f32) {
        let (weights, out) = (self.weights, self.buffer(out));
        let matrix = weights.matrix(weight);
        let layout = &matrix.layout;
        for part in &matrix.parts {
            let params = params::Embed {
                zero: 0,
                width: layout.k as u32,
                segments: layout.segments.count as u32,
                segment_len: layout.segments.len as u32,
                first_row: part.first_row as u32,
                rows: part.rows as u32,
                scale,
                planes: params::Planes::of(layout, part),
            };
            let bindings = vec![
                (1, self.sequence.state.clone()),
                (2, part.quants.clone()),
                (3, part.planes.clone()),
                (4, self.space.tokens.clone()),
                (10, out.f32().clone()),
            ];
            let grid = Grid::Rows { x: layout.k.div_ceil(256) as u32 };
            self.push(Kernel::Embed(layout.kind), params, bindings, grid);
        }
    }

    fn rms_norm(
        &mut self,
        x: BufferId,
        weight: WeightId,
        out: BufferId,
        accumulate: bool,
        eps: f32,
        source: Option<usize>,
    ) {
        let out = self.buffer(out);
        let (segments, segment_len) = out.segments();
        let width = out.width();
        let params = params::RmsNorm {
            zero: 0,
            width: width as u32,
            segments,
            segment_len,
            eps,
            inverse_width: 1.0 / width as f32,
            source: source.map_or(0, |layer| layer as u32 + 1),
        };
        let (output, mut bindings) = out.output(accumulate);
        bindings.extend([
            (1, self.sequence.state.clone()),
            (2, self.buffer(x).f32().clone()),
            (3, self.weights.vector(weight).clone()),
            (4, self.sequence.tripped.clone()),
        ]);
        self.push(Kernel::RmsNorm(output), params, bindings, Grid::Rows { x: 1 });
    }

    fn matmul(&mut self, weight: WeightId, x: BufferId, out: BufferId, out_offset: usize, accumulate: bool) {
        let (weights, x, out_id, out) = (self.weights, self.buffer(x), out, self.buffer(out));
        let matrix = weights.matrix(weight);
        let layout = &matrix.layout;
        let (tile, form) = (self.form.tile_for(layout.kind, self.spread.tile), self.form);
        let by_slot = u32::from(self.in_head && out_id == self.plan.logits);
        let rows_a_group = form.rows_a_group(tile, layout);
        let rows: usize = matrix.parts.iter().map(|part| part.rows).sum();
        let bytes = self.tag.bytes;
        for part in &matrix.parts {
            self.tag.bytes = bytes * part.rows as u64 / rows as u64;
            let params = params::MatMul {
                zero: 0,
                rows: part.rows as u32,
                blocks: layout.segments.blocks as u32,
                segments: layout.segments.count as u32,
                segment_len: layout.segments.len as u32,
                rows_a_group: rows_a_group as u32,
                out_offset: (out_offset + part.first_row) as u32,
                out_width: out.width() as u32,
                accumulate: u32::from(accumulate),
                by_slot,
                planes: params::Planes::of(layout, part),
            };
            let mut bindings = vec![
                (1, self.sequence.state.clone()),
                (2, part.quants.clone()),
                (3, part.planes.clone()),
                (10, out.f32().clone()),
            ];
            bindings.extend(x.factor());
            let grid = Grid::tiles(part.rows.div_ceil(rows_a_group) as u32, tile);
            self.push(Kernel::MatMul { kind: layout.kind, tile, form }, params, bindings, grid);
        }
    }

    fn rope_append(&mut self, op: &Op) -> Result<()> {
        let Op::RopeAppend { qkv, q_norm, k_norm, eps, rope, kind, heads, q_scale, layer } = *op else {
            unreachable!("called for this operation");
        };
        if heads.head_dim > MAX_HEAD_DIM || !heads.head_dim.is_multiple_of(8) {
            return Err(Error::BadOption {
                option: "head dimension",
                found: heads.head_dim.to_string(),
                expected: "a multiple of 8, at most 256, on this backend",
            });
        }
        let params = params::RopeAppend {
            zero: 0,
            n_heads: heads.n_heads as u32,
            n_kv_heads: heads.n_kv_heads as u32,
            head_dim: heads.head_dim as u32,
            query_stride: heads.query_stride() as u32,
            n_pairs: self.plan.ropes[rope].frequencies.len() as u32,
            neox: u32::from(kind == RopeKind::Neox),
            norm_q: u32::from(q_norm.is_some()),
            norm_k: u32::from(k_norm.is_some()),
            eps,
            inverse_dim: 1.0 / heads.head_dim as f32,
            q_scale,
            pages_a_slot: self.sequence.tables.pages_a_slot as u32,
        };
        let sequence = self.sequence;
        let norm = |id: Option<WeightId>| id.map_or(&sequence.nothing, |id| self.weights.vector(id)).clone();
        let (keys, values) = &sequence.cache[layer];
        let bindings = vec![
            (1, sequence.state.clone()),
            (2, sequence.block_table.clone()),
            (3, self.buffer(qkv).f32().clone()),
            (4, norm(q_norm)),
            (5, norm(k_norm)),
            (6, sequence.ropes[rope].clone()),
            (7, keys.clone()),
            (8, values.clone()),
        ];
        let grid = Grid::Rows { x: (heads.n_heads + 2 * heads.n_kv_heads) as u32 };
        self.push(Kernel::RopeAppend(self.plan.layers[layer].kv), params, bindings, grid);
        Ok(())
    }

    fn attention(&mut self, qkv: BufferId, out: BufferId, heads: Heads, layer: usize) {
        let sequence = self.sequence;
        let chunks_per_unit = self.spread.chunks_per_unit;
        let max_units = max_units(heads.window, chunks_per_unit, sequence.capacity.n_ctx) as u32;
        let window = heads.window.unwrap_or(0);
        let head_groups = (heads.n_heads / heads.n_kv_heads).div_ceil(HEADS_A_GROUP);
        let params = params::Attention {
            zero: 0,
            n_heads: heads.n_heads as u32,
            n_kv_heads: heads.n_kv_heads as u32,
            head_dim: heads.head_dim as u32,
            query_stride: heads.query_stride() as u32,
            head_groups: head_groups as u32,
            window: window as u32,
            chunks_per_unit: chunks_per_unit as u32,
            max_units,
            pages_a_slot: sequence.tables.pages_a_slot as u32,
        };
        let (keys, values) = &sequence.cache[layer];
        let bindings = vec![
            (1, sequence.state.clone()),
            (2, sequence.block_table.clone()),
            (3, self.buffer(qkv).f32().clone()),
            (4, keys.clone()),
            (5, values.clone()),
            (6, self.space.partials.clone()),
        ];
        let grid = Grid::Units { y: (heads.n_kv_heads * head_groups) as u32, window, chunks_per_unit };
        self.push(Kernel::Attention(self.plan.layers[layer].kv), params, bindings, grid);

        let out = self.buffer(out);
        let (segments, segment_len) = out.segments();
        let params = params::AttentionMerge {
            zero: 0,
            width: out.width() as u32,
            segments,
            segment_len,
            n_heads: heads.n_heads as u32,
            head_dim: heads.head_dim as u32,
            window: window as u32,
            chunks_per_unit: chunks_per_unit as u32,
            max_units,
            gated: u32::from(heads.gated),
            qkv_width: heads.row_width() as u32,
        };
        let (output, mut bindings) = out.output(false);
        let qkv = self.buffer(qkv).f32().clone();
        bindings.extend([(1, sequence.state.clone()), (2, self.space.partials.clone()), (3, qkv)]);
        let grid = Grid::Rows { x: out.width().div_ceil(256) as u32 };
        self.push(Kernel::AttentionMerge(output), params, bindings, grid);
    }

    fn gated_activation(&mut self, gate_up: BufferId, out: BufferId, activation: Activation) {
        let out = self.buffer(out);
        let (segments, segment_len) = out.segments();
        let params = params::GatedActivation {
            zero: 0,
            vectors: out.vectors() as u32,
            width: out.width() as u32,
            segments,
            segment_len,
            activation: match activation {
                Activation::Silu => 0,
                Activation::GeluTanh => 1,
            },
        };
        let (output, mut bindings) = out.output(false);
        bindings.extend([(1, self.sequence.state.clone()), (2, self.buffer(gate_up).f32().clone())]);
        let grid = Grid::Vectors { x: out.width().div_ceil(256) as u32, vectors: out.vectors() as u32 };
        self.push(Kernel::GatedActivation(output), params, bindings, grid);
    }

    fn sample(&mut self, logits: BufferId) {
        let (sequence, n_vocab, logits) = (self.sequence, self.plan.n_vocab, self.buffer(logits));
        let bound = Bound { sequence, n_vocab, logits: logits.f32() };
        self.drafts.extend(bound.plain());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chunks are merged in ascending order within their group: no unit may hold some of a group's chunks but not all.
    #[test]
    fn units_are_chunks_or_groups() {
        let heads = Heads { n_heads: 32, n_kv_heads: 8, head_dim: 128, window: None, gated: false };
        let ops = [Op::Attention { qkv: BufferId(0), out: BufferId(1), heads, layer: 0 }];
        let mut seen = Vec::new();
        for n_ctx in [64, 4096, 16 << 10, 128 << 10] {
            for rows in [1, 2, 8, 64] {
                let units = Spread::of_batch(rows, rows as usize, &ops, n_ctx).chunks_per_unit;
                assert!(
                    units == 1 || units == CHUNKS_PER_GROUP,
                    "{units} chunks a unit, {rows} rows of {n_ctx} positions"
                );
                seen.push(units);
            }
        }
        assert!(seen.contains(&1) && seen.contains(&CHUNKS_PER_GROUP));
    }
}
