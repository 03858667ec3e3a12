//! A plan's lists as steps: one instance for chunks of a prompt, and for decoding one for each number of rows that a matmul workgroup multiplies.

use super::buffers::Allocator;
use super::device::Gpu;
use super::driver::Usage;
use super::kernels::MatMulForm;
use super::ops::{Lowering, PlanBuffer, Space, Spread, partials_bytes};
use super::recorder::Step;
use super::sampler::Sampler;
use super::sequence::Sequence;
use super::weights::GpuWeights;
use crate::engine::backend::Capacity;
use crate::error::Result;
use crate::plan::{CHUNKS_PER_GROUP, Plan};

/// Rows of a prefill chunk, on a GPU and on an adapter that computes on the processor.
const CHUNK: usize = 256;
const SOFTWARE_CHUNK: usize = 64;
/// Bytes a buffer of a prefill chunk may have.
const MAX_CHUNK_BYTES: usize = 64 << 20;

/// The plan's body for chunks of a prompt.
pub(super) struct Prefill {
    pub(super) capacity: usize,
    pub(super) space: Space,
    pub(super) body: Vec<Step>,
    /// Where the steps of each operation of the body end.
    pub(super) ends: Vec<usize>,
}

/// The whole plan for a row of each of several slots.
pub(super) struct Decode {
    form: MatMulForm,
    pub(super) space: Space,
    /// By tile, up to the first that holds a row of every slot. All are made at the beginning: nobody waits for shaders where a row joins.
    instances: Vec<Instance>,
    pub(super) sampler: Sampler,
    pub(super) embed: Vec<Step>,
    pub(super) embedding: PlanBuffer,
    pub(super) hidden: PlanBuffer,
    pub(super) logits: PlanBuffer,
}

/// Body and head for some number of rows, and where the steps of each operation end.
pub(super) struct Instance {
    pub(super) body: Vec<Step>,
    pub(super) body_ends: Vec<usize>,
    pub(super) head: Vec<Step>,
    pub(super) head_ends: Vec<usize>,
}

impl Instance {
    fn new(allocator: &mut Allocator, mut lowering: Lowering<'_>) -> Result<Self> {
        let body = lowering.body(allocator)?;
        let body_ends = lowering.ends();
        let head = lowering.head(allocator)?;
        Ok(Instance { body, body_ends, head, head_ends: lowering.ends() })
    }
}

/// Which of the tiles steps of `rows` rows use.
fn tile_of(form: MatMulForm, rows: usize) -> usize {
    let tiles = form.tiles();
    tiles.iter().position(|tile| *tile as usize >= rows).unwrap_or(tiles.len() - 1)
}

impl Decode {
    pub(super) fn new(
        gpu: &Gpu,
        allocator: &mut Allocator,
        plan: &Plan,
        weights: &GpuWeights,
        sequence: &Sequence,
    ) -> Result<Self> {
        let Capacity { slots, n_ctx, .. } = sequence.capacity;
        let ops: [&[_]; 4] = [&plan.body, &plan.head, &plan.sample, &plan.embed];
        let form = gpu.matmul_form();
        let tiles = &form.tiles()[..=tile_of(form, slots)];
        let widest = tiles.last().copied().unwrap_or(1);
        let spread = |tile| Spread::of_batch(tile, slots, &plan.body, n_ctx);
        let bytes_of = |rows, spread: Spread| partials_bytes(&plan.body, rows, n_ctx, spread.chunks_per_unit);
        let partials = bytes_of(1, Spread::SINGLE).max(bytes_of(slots, spread(widest)));
        // A matmul reads whole tiles.
        let rows = slots.next_multiple_of(widest as usize);
        let space = Space::new(allocator, plan, rows, &ops, &sequence.tokens, partials);
        let lowering = |spread| Lowering::new(gpu, plan, weights, sequence, form, spread, &space);
        let instances = tiles.iter().map(|tile| Instance::new(allocator, lowering(spread(*tile))));
        let instances = instances.collect::<Result<_>>()?;
        let mut single = lowering(Spread::SINGLE);
        let sampler = Sampler::new(single.steps(allocator, &plan.sample)?);
        let embed = single.steps(allocator, &plan.embed)?;
        Ok(Decode {
            form,
            instances,
            sampler,
            embed,
            embedding: space.buffer(plan.embedding),
            hidden: space.buffer(plan.hidden),
            logits: space.buffer(plan.logits),
            space,
        })
    }

    /// The instance for steps of `rows` rows, at most one a slot.
    pub(super) fn instance(&self, rows: usize) -> &Instance {
        &self.instances[tile_of(self.form, rows)]
    }
}

impl Prefill {
    pub(super) fn new(
        gpu: &Gpu,
        allocator: &mut Allocator,
        plan: &Plan,
        weights: &GpuWeights,
        sequence: &Sequence,
    ) -> Result<Self> {
        let n_ctx = sequence.capacity.n_ctx;
        let capacity = prefill_rows(gpu, plan, n_ctx);
        let tokens = allocator.buffer("tokens", (capacity * 4) as u64, Usage::Storage);
        let form = gpu.matmul_form();
        let spread = Spread::chunk(form.largest_tile());
        let partials = partials_bytes(&plan.body, capacity, n_ctx, spread.chunks_per_unit);
        let space = Space::new(allocator, plan, capacity, &[&plan.body], &tokens, partials);
        let mut lowering = Lowering::new(gpu, plan, weights, sequence, form, spread, &space);
        let body = lowering.body(allocator)?;
        let ends = lowering.ends();
        Ok(Prefill { capacity, space, body, ends })
    }
}

/// Rows of a prefill chunk: a multiple of the matmul tile, more than one.
fn prefill_rows(gpu: &Gpu, plan: &Plan, n_ctx: usize) -> usize {
    let widths = plan.buffers.iter().enumerate().filter(|(id, _)| *id != plan.logits.0 as usize);
    let widest = widths.map(|(_, shape)| shape.vectors() * shape.width());
    let row_bytes = (4 * widest.max().unwrap_or(1))
        .max(partials_bytes(&plan.body, CHUNK, n_ctx, CHUNKS_PER_GROUP) as usize / CHUNK);
    let fitting = MAX_CHUNK_BYTES / row_bytes;
    let wanted = if gpu.is_software() { SOFTWARE_CHUNK } else { CHUNK };
    let tile = gpu.matmul_form().largest_tile() as usize;
    wanted.min(n_ctx.next_multiple_of(tile)).min(fitting / tile * tile).max(tile)
}
