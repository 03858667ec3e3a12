//! A plan of a few operations on a device, with inputs and outputs within reach.

use super::super::buffers::{Allocator, write};
use super::super::device::Gpu;
use super::super::driver::{Buffer, Usage};
use super::super::kernels::MatMulForm;
use super::super::ops::{Lowering, PlanBuffer, Space, Spread, partials_bytes};
use super::super::params::{RowEntry, RowsHeader, State, state_at};
use super::super::recorder::{Commands, Step};
use super::super::sequence::Sequence;
use super::super::weights::GpuWeights;
use super::super::words::read_words;
use bytemuck::Zeroable;

use crate::cpu::matrix::PackedMatrix;
use crate::cpu::quantise::Q8Rows;
use crate::engine::backend::{Readback, WeightSink};
use crate::error::{Error, Result};
use crate::micro::blocks::push_row;
use crate::micro::rng::Rng;
use crate::model::weights::{Role, WeightDesc};
use crate::plan::{BufferId, KvShape, Op, Plan, RopeTable, Shape, WeightId};
use crate::quant::{PlaneLayout, Planes, QuantType, repack_rows};

/// Weights on the device, and a plan over them.
pub(super) struct Bench {
    gpu: Gpu,
    pub(super) plan: Plan,
    pub(super) weights: GpuWeights,
    /// How matmuls spread their work.
    pub(super) form: MatMulForm,
    /// Rows of x a matmul workgroup computes, in instances of several rows.
    pub(super) tile: u32,
    n_weights: u32,
}

/// A bench with the buffers of one sequence.
pub(super) struct Table {
    bench: Bench,
    pub(super) sequence: Sequence,
    allocator: Allocator,
}

/// Operations bound for a number of rows.
pub(super) struct Instance {
    gpu: Gpu,
    lists: Vec<Vec<Step>>,
    space: Space,
    state: Buffer,
    /// Rows it has room for.
    capacity: usize,
}

impl Bench {
    /// A bench whose plan has buffers of `shapes`; the last is the logits.
    pub(super) fn new(gpu: &Gpu, shapes: Vec<Shape>) -> Self {
        let logits = BufferId(shapes.len() as u32 - 1);
        let plan = Plan {
            body: Vec::new(),
            head: Vec::new(),
            sample: Vec::new(),
            embed: Vec::new(),
            buffers: shapes,
            hidden: BufferId(0),
            logits,
            embedding: BufferId(0),
            ropes: Vec::new(),
            layers: Vec::new(),
            recurrent: Vec::new(),
            layer_starts: Vec::new(),
            weights: Vec::new(),
            n_vocab: 1,
        };
        let weights = GpuWeights::new(gpu);
        Bench {
            gpu: gpu.clone(),
            plan,
            weights,
            form: gpu.matmul_form(),
            tile: gpu.matmul_form().largest_tile(),
            n_weights: 0,
        }
    }

    pub(super) fn layer(&mut self, rope: RopeTable, shape: KvShape) {
        self.plan.ropes.push(rope);
        self.plan.layers.push(shape);
    }

    fn next(&mut self) -> WeightId {
        self.n_weights += 1;
        WeightId(self.n_weights - 1)
    }

    pub(super) fn vector(&mut self, values: &[f32]) -> Result<WeightId> {
        let id = self.next();
        self.weights.write_vector(id, values)?;
        Ok(id)
    }

    /// A random matrix on both sides.
    pub(super) fn matrix(&mut self, kind: QuantType, rows: usize, k: usize) -> Result<(WeightId, PackedMatrix)> {
        let layout = PlaneLayout::new(kind, k).map_err(|reason| Error::Device { reason })?;
        let mut rng = Rng::new(k as u64, "matrix");
        let mut bytes = Vec::new();
        for _ in 0..rows {
            push_row(&mut rng, kind, k, (k as f32).sqrt().recip(), &mut bytes);
        }
        let mut planes = Planes::zeroed(&layout, rows);
        repack_rows(&layout, &bytes, planes.as_mut());
        let desc = WeightDesc { tensors: Vec::new(), kind, rows, n_experts: 1, k, role: Role::Matrix };
        let id = self.next();
        self.weights.allocate(id, &desc, &layout)?;
        self.weights.write_rows(id, 0, rows, &planes)?;
        let mut matrix = PackedMatrix::zeroed(layout, rows);
        matrix.write_rows(0, rows, &planes);
        Ok((id, matrix))
    }

    pub(super) async fn table(mut self, n_ctx: usize) -> Result<Table> {
        let mut allocator = Allocator::new(&self.gpu);
        self.weights.finish().await?;
        let sequence = Sequence::new(&self.gpu, &mut allocator, &self.plan, n_ctx.into())?;
        allocator.finish().await?;
        Ok(Table { bench: self, sequence, allocator })
    }
}

impl Table {
    /// Binds the lists of operations for `rows` rows.
    pub(super) async fn instance(&mut self, rows: usize, lists: &[&[Op]]) -> Result<Instance> {
        let Table { bench, sequence, allocator } = self;
        let rows = if rows == 1 { 1 } else { rows.next_multiple_of(bench.tile as usize) };
        let spread = if rows == 1 { Spread::SINGLE } else { Spread::chunk(bench.tile) };
        let tokens = match rows {
            1 => sequence.tokens.clone(),
            _ => allocator.buffer("tokens", (rows * 4) as u64, Usage::Storage),
        };
        let bytes = |ops: &&[Op]| partials_bytes(ops, rows, sequence.capacity.n_ctx, spread.chunks_per_unit);
        let partials = lists.iter().map(bytes).max().unwrap_or(0);
        let space = Space::new(allocator, &bench.plan, rows, lists, &tokens, partials);
        let Bench { gpu, plan, weights, form, .. } = bench;
        let mut lowering = Lowering::new(gpu, plan, weights, sequence, *form, spread, &space);
        let mut steps = Vec::new();
        for ops in lists {
            steps.push(lowering.steps(allocator, ops)?);
        }
        allocator.finish().await?;
        bench.gpu.check()?;
        Ok(Instance { gpu: bench.gpu.clone(), lists: steps, space, state: sequence.state.clone(), capacity: rows })
    }
}

impl Instance {
    fn buffer(&self, id: BufferId) -> PlanBuffer {
        self.space.buffer(id)
    }

    /// Uploads f32 rows.
    pub(super) fn set(&self, id: BufferId, values: &[f32]) {
        write(&self.gpu, self.buffer(id).f32(), 0, bytemuck::cast_slice(values));
    }

    /// Uploads int8 rows.
    pub(super) fn set_q8(&self, id: BufferId, rows: &Q8Rows) {
        if let PlanBuffer::Q8 { q, s, .. } = self.buffer(id) {
            write(&self.gpu, &q, 0, bytemuck::cast_slice(&rows.q));
            write(&self.gpu, &s, 0, bytemuck::cast_slice(&rows.scale_words()));
        }
    }

    pub(super) fn set_tokens(&self, tokens: &[u32]) {
        write(&self.gpu, &self.space.tokens, 0, bytemuck::cast_slice(tokens));
    }

    pub(super) fn set_state(&self, state: State) {
        write(&self.gpu, &self.state, state_at(0), bytemuck::bytes_of(&state));
    }

    /// How the row draws.
    pub(super) fn set_how(&self, how: u32) {
        let rows = RowsHeader::batch(&[RowEntry { how, ..Zeroable::zeroed() }]);
        write(&self.gpu, &self.state, 0, bytemuck::bytes_of(&rows));
    }

    /// Runs list `list` for `rows` rows, the first at `position`.
    pub(super) fn run(&self, list: usize, rows: usize, position: usize) {
        if self.capacity > 1 {
            write(&self.gpu, &self.state, 0, bytemuck::bytes_of(&RowsHeader::chunk(0, rows)));
        } else {
            write(&self.gpu, &self.state, 0, bytemuck::bytes_of(&RowsHeader::single(0)));
        }
        let positions: Vec<usize> = (position..).take(rows).collect();
        let mut commands = Commands::new(&self.gpu);
        commands.record(&self.lists[list], &positions);
        commands.submit();
    }

    /// Runs steps made elsewhere.
    pub(super) fn run_steps<'a>(&self, steps: impl IntoIterator<Item = &'a Step>) {
        let mut commands = Commands::new(&self.gpu);
        commands.record(steps, &[0]);
        commands.submit();
    }

    /// The device buffer behind an f32 buffer.
    pub(super) fn f32(&self, id: BufferId) -> Buffer {
        self.buffer(id).f32().clone()
    }

    /// The first `rows` rows of a buffer: f32 bits, or the int8 words and then scales and sums.
    pub(super) async fn words(&self, id: BufferId, rows: usize) -> Result<Vec<u32>> {
        self.buffer(id).words(&self.gpu, Readback::Test, rows).await
    }

    /// The first `n` words of a buffer.
    pub(super) async fn read(&self, buffer: &Buffer, n: usize) -> Result<Vec<u32>> {
        read_words(&self.gpu, Readback::Test, buffer, 0, n).await
    }
}
