//! Interprets the operations of a plan, one after another.

mod delta_net;

use std::sync::Arc;

use super::attention::{Visible, attention};
use super::buffers::Buffers;
use super::combine_experts::combine_experts;
use super::expert_matmul::expert_matmul;
use super::gated_activation::gated_activation;
use super::gated_add::gated_add;
use super::kv::LayerCache;
use super::matmul::matmul;
use super::pool::Pool;
use super::recurrent::LayerStates;
use super::rms_norm::rms_norm;
use super::rope_append::RopeAppend;
use super::route::route;
use super::timing::{Part, Stopwatch};
use super::weights::CpuWeights;
use crate::engine::backend::{BlockTables, Trip};
use crate::plan::{BufferId, Op, PAGE, Plan, WeightId};

/// The rows of a run: a chunk of one sequence, or a token of each of several.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) tokens: &'a [u32],
    /// Slot and position of each.
    pub(super) places: &'a [Place],
}

impl Rows<'_> {
    /// The first row of the sequence that row `r` belongs to, and where it stands.
    fn first_of_sequence(self, r: usize) -> (usize, Place) {
        let slot = self.places[r].slot;
        let first = if self.places[0].slot == slot { 0 } else { r };
        (first, self.places[first])
    }
}

/// Where a row stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) slot: usize,
    pub(super) position: usize,
}

/// What interpreting an operation needs besides the buffers.
pub(super) struct Machine {
    pub(super) plan: Arc<Plan>,
    pub(super) weights: CpuWeights,
    /// `[n_ctx, pairs, 2]` by variant.
    pub(super) ropes: Vec<Vec<f32>>,
    pub(super) cache: Vec<LayerCache>,
    /// By recurrent layer.
    pub(super) recurrent: Vec<LayerStates>,
    pub(super) pool: Arc<Pool>,
    pub(super) tables: BlockTables,
    /// Bits of the magnitude from which the guard trips, and its word by slot.
    pub(super) limit: u32,
    pub(super) tripped: Vec<u32>,
    pub(super) watch: Stopwatch,
}

impl Machine {
    pub(super) fn run(&mut self, part: Part, buffers: &mut Buffers, rows: Rows<'_>) {
        let plan = self.plan.clone();
        for (at, op) in part.ops(&plan).iter().enumerate() {
            let start = self.watch.start_step();
            self.step(op, buffers, rows);
            self.watch.end_step(part, at, start);
        }
    }

    pub(super) fn step(&mut self, op: &Op, buffers: &mut Buffers, rows: Rows<'_>) {
        match *op {
            Op::Embed { weight, out, scale } => self.embed(buffers, weight, out, scale, rows.tokens),
            Op::RmsNorm { x, weight, out, eps, accumulate, source } => {
                self.check_finite(buffers.get(x).f32(), source, rows.places);
                let (weight, pool) = (self.weights.vector(weight), &self.pool);
                buffers.produce(out, accumulate, |buffers, out| {
                    let x = buffers.get(x).f32();
                    pool.for_chunks(out, weight.len(), |r, out| {
                        rms_norm(&x[r * weight.len()..][..weight.len()], weight, eps, out);
                    });
                });
            }
            Op::MatMul { weight, x, out, out_offset, accumulate } => {
                self.matmul(buffers, weight, x, out, out_offset, accumulate)
            }
            Op::RopeAppend { .. } => self.rope_append(op, buffers, rows.places),
            Op::Attention { qkv, out, heads, layer } => {
                let (cache, pool, tables) = (&self.cache[layer], &self.pool, &self.tables);
                let (row_width, stride) = (heads.row_width(), heads.query_stride());
                let group = heads.n_heads / heads.n_kv_heads;
                buffers.produce(out, false, |buffers, out| {
                    let qkv = buffers.get(qkv).f32();
                    pool.for_chunks(out, heads.head_dim, |i, out| {
                        let (row, head) = (i / heads.n_heads, i % heads.n_heads);
                        let query = &qkv[row * row_width + head * stride..][..stride];
                        let place = rows.places[row];
                        let seen = Visible { cache, pages: tables.of(place.slot) };
                        attention(query, seen, heads, head / group, place.position, out);
                    });
                });
            }
            Op::GatedActivation { gate_up, out, activation } => {
                let (width, pool) = (self.plan.shape(out).width(), &self.pool);
                buffers.produce(out, false, |buffers, out| {
                    let gate_up = buffers.get(gate_up).f32();
                    pool.for_chunks(out, width, |v, out| {
                        gated_activation(&gate_up[v * 2 * width..][..2 * width], activation, out);
                    });
                });
            }
            Op::Route { logits, out } => {
                let (n_experts, n_used) = (self.plan.shape(logits).width(), self.plan.shape(out).vectors());
                buffers.produce(out, false, |buffers, out| {
                    let logits = buffers.get(logits).f32().chunks_exact(n_experts);
                    logits.zip(out.chunks_exact_mut(2 * n_used)).for_each(|(logits, out)| route(logits, out));
                });
            }
            Op::ExpertMatMul { weight, n_experts, x, route, out, out_offset } => {
                let shape = self.plan.shape(out);
                let (weight, pool) = (self.weights.matrix(weight), &self.pool);
                let mut target = std::mem::take(buffers.all[out.0 as usize].f32_vec());
                let (x, route) = (buffers.get(x).activations(), buffers.get(route).f32());
                expert_matmul(
                    weight,
                    n_experts,
                    x,
                    route,
                    shape.vectors(),
                    &mut target,
                    shape.width(),
                    out_offset,
                    pool,
                );
                *buffers.all[out.0 as usize].f32_vec() = target;
            }
            Op::CombineExperts { y, route, out } => {
                let (n_used, width, pool) = (self.plan.shape(y).vectors(), self.plan.shape(out).width(), &self.pool);
                buffers.produce(out, true, |buffers, out| {
                    let (y, route) = (buffers.get(y).f32(), buffers.get(route).f32());
                    pool.for_chunks(out, width, |r, out| {
                        let (y, route) = (&y[r * n_used * width..], &route[r * n_used * 2..][..n_used * 2]);
                        combine_experts(y, route, out);
                    });
                });
            }
            Op::DeltaPrepare { .. } => self.delta_prepare(op, buffers, rows),
            Op::DeltaRule { mixed, prepared, out, heads, state } => {
                self.delta_rule(mixed, prepared, out, heads, state, buffers, rows);
            }
            Op::GatedNorm { x, mixed, weight, out, eps, heads } => {
                self.gated_norm(x, mixed, weight, out, eps, heads, buffers)
            }
            Op::GatedAdd { y, gate, out } => {
                let pool = &self.pool;
                buffers.produce(out, true, |buffers, out| {
                    let (y, gates) = (buffers.get(y).f32(), buffers.get(gate).f32());
                    let width = y.len() / gates.len();
                    pool.for_chunks(out, width, |r, out| gated_add(&y[r * width..][..width], gates[r], out));
                });
            }
            // The CPU draws on the host: `burst_now`.
            Op::Sample { .. } => {}
        }
    }

    /// The guard: notes the first row of `x` with a magnitude that reaches the limit.
    fn check_finite(&mut self, x: &[f32], layer: Option<usize>, places: &[Place]) {
        for (place, row) in places.iter().zip(x.chunks_exact(x.len() / places.len())) {
            let largest = row.iter().map(|x| x.to_bits() & 0x7fff_ffff).max().unwrap_or(0);
            if largest >= self.limit {
                let not_finite = largest >= f32::INFINITY.to_bits();
                let trip = Trip { layer, position: place.position, not_finite };
                self.tripped[place.slot] = self.tripped[place.slot].min(trip.word());
            }
        }
    }

    fn embed(&self, buffers: &mut Buffers, weight: WeightId, out: BufferId, scale: f32, tokens: &[u32]) {
        let matrix = self.weights.matrix(weight);
        buffers.produce(out, false, |_, out| {
            for (token, out) in tokens.iter().zip(out.chunks_exact_mut(matrix.layout().k)) {
                matrix.dequantise_row(*token as usize, out);
                if scale != 1.0 {
                    out.iter_mut().for_each(|x| *x *= scale);
                }
            }
        });
    }

    fn matmul(
        &self,
        buffers: &mut Buffers,
        weight: WeightId,
        x: BufferId,
        out: BufferId,
        out_offset: usize,
        accumulate: bool,
    ) {
        let mut target = std::mem::take(buffers.all[out.0 as usize].f32_vec());
        let stride = target.len() / buffers.n_rows;
        let x = buffers.get(x).activations();
        matmul(self.weights.matrix(weight), x, accumulate, &mut target, stride, out_offset, &self.pool);
        *buffers.all[out.0 as usize].f32_vec() = target;
    }

    fn rope_append(&mut self, op: &Op, buffers: &mut Buffers, places: &[Place]) {
        let &Op::RopeAppend { qkv, q_norm, k_norm, eps, rope, kind, heads, q_scale, layer } = op else { return };
        let rope_append = RopeAppend {
            heads,
            q_norm: q_norm.map(|id| self.weights.vector(id)),
            k_norm: k_norm.map(|id| self.weights.vector(id)),
            eps,
            kind,
            table: &self.ropes[rope],
            n_pairs: self.plan.ropes[rope].frequencies.len(),
            q_scale,
        };
        let n_rows = buffers.n_rows;
        let rows = buffers.all[qkv.0 as usize].f32_mut();
        let width = rows.len() / n_rows;
        for (place, row) in places.iter().zip(rows.chunks_exact_mut(width)) {
            let page = self.tables.of(place.slot)[place.position / PAGE];
            rope_append.row(row, place.position, &mut self.cache[layer], page);
        }
    }
}
