//! The backend: one sequence of a plan on a device.

mod trace;

use std::sync::Arc;

use super::buffers::{Allocator, STAGING, STORAGE, write};
use super::device::Gpu;
use super::floor;
use super::ops::{Lowering, PlanBuffer, partials_bytes};
use super::params::{State, UNGUARDED};
use super::pipelines::PREFILL_TILE;
use super::readback;
use super::recorder::{Commands, Step};
use super::sampler::{Bound, Chains, bind, rules};
use super::sequence::Sequence;
use super::timing::Timers;
use super::weights::GpuWeights;
use crate::engine::backend::{
    Backend, BackendInfo, Burst, Counters, Drawn, Execution, ID_BITS, Limits, MAX_GUARDED_LAYERS, Readback,
    RingCounters, RingSize, Timing, Trip, UNTRIPPED, check_feed,
};
use crate::engine::ledger::{Ledger, Phase};
use crate::error::{Error, Result};
use crate::plan::{Plan, Shape};
use crate::sample::Sampling;
use trace::Reach;

/// Rows of a prefill chunk, on a GPU and on an adapter that computes on the processor.
const CHUNK: usize = 256;
const SOFTWARE_CHUNK: usize = 64;
/// Bytes a buffer of a prefill chunk may have.
const MAX_CHUNK_BYTES: usize = 64 << 20;

/// The plan's body for chunks of a prompt.
struct Prefill {
    capacity: usize,
    tokens: wgpu::Buffer,
    body: Vec<Step>,
    hidden: PlanBuffer,
    reach: Reach,
}

/// The whole plan for one row.
pub(super) struct Decode {
    pub(super) body: Vec<Step>,
    pub(super) head: Vec<Step>,
    pub(super) sample: Vec<Step>,
    embed: Vec<Step>,
    embedding: PlanBuffer,
    hidden: PlanBuffer,
    logits: PlanBuffer,
    /// Draws that are not plain; made when first asked for.
    chains: Option<Chains>,
    reach: Reach,
}

/// A model on a GPU.
pub struct GpuBackend {
    pub(super) gpu: Gpu,
    info: BackendInfo,
    plan: Arc<Plan>,
    pub(super) sequence: Sequence,
    prefill: Prefill,
    pub(super) decode: Decode,
    /// Where the host reads a row of logits or an embedding.
    pub(super) row_staging: wgpu::Buffer,
    pub(super) execution: Execution,
    /// The size of the ring that the sampler's steps are bound to.
    bound_to: RingSize,
    pub(super) timers: Timers,
    /// Rows of the last feed; one row is the decode instance's.
    pub(super) fed_rows: usize,
    /// Position of the first of them.
    pub(super) fed_position: usize,
    /// How the device was told to draw.
    pub(super) sampling: Option<Sampling>,
    /// The ids that end the row, as the device has them.
    pub(super) stops: Vec<u32>,
    /// Counters when the backend was made.
    baseline: Counters,
    // Held for the buffers' sake.
    _weights: GpuWeights,
}

impl GpuBackend {
    /// A backend with an empty cache for `n_ctx` positions.
    ///
    /// # Errors
    /// `OutOfDeviceMemory` where something does not fit, `ContextFull` where a layer's cache exceeds what the device can bind,
    /// `Device` where the device failed, `BadOption` for a geometry the kernels do not have.
    pub async fn new(gpu: &Gpu, plan: Arc<Plan>, mut weights: GpuWeights, n_ctx: usize) -> Result<Self> {
        let baseline = gpu.tally().counters();
        weights.finish().await?;
        plan.check_weights(|id| weights.has(id))?;
        if plan.layers.len() > MAX_GUARDED_LAYERS {
            let found = plan.layers.len().to_string();
            return Err(Error::BadOption { option: "layers", found, expected: "at most 1022" });
        }
        if plan.n_vocab >= 1 << ID_BITS {
            let found = plan.n_vocab.to_string();
            return Err(Error::BadOption { option: "vocabulary size", found, expected: "below 2^24" });
        }
        let mut allocator = Allocator::new(gpu);
        let sequence = Sequence::new(gpu, &mut allocator, &plan, n_ctx.max(1))?;
        let decode = decode_instance(gpu, &mut allocator, &plan, &weights, &sequence)?;
        let prefill = prefill_instance(gpu, &mut allocator, &plan, &weights, &sequence)?;
        let row_bytes = (plan.n_vocab as u64 * 4).max(decode.embedding.row_bytes());
        let row_staging = allocator.buffer("row staging", row_bytes, STAGING);
        allocator.finish().await?;
        gpu.check()?;
        Ok(GpuBackend {
            info: BackendInfo { backend: "wgpu", adapter: gpu.adapter().name.clone() },
            gpu: gpu.clone(),
            plan,
            sequence,
            prefill,
            decode,
            row_staging,
            execution: Execution::default(),
            bound_to: RingSize::default(),
            timers: Timers::new(gpu),
            fed_rows: 1,
            fed_position: 0,
            sampling: None,
            stops: Vec::new(),
            baseline,
            _weights: weights,
        })
    }

    pub(super) fn limits(&self) -> Limits {
        Limits { n_vocab: self.plan.n_vocab, n_ctx: self.sequence.n_ctx, steps: self.sequence.ring.size().steps }
    }

    pub(super) fn write_state(&self, state: State) {
        write(&self.gpu, &self.sequence.state, 0, bytemuck::bytes_of(&state));
    }

    /// A running row at `position`; how it draws is to be told anew.
    fn write_running(&mut self, position: usize) {
        self.write_state(State { limit: self.limit_bits(), ..State::at(position) });
        self.sampling = None;
    }

    pub(super) fn write_history(&self, tokens: &[u32], position: usize) {
        write(&self.gpu, &self.sequence.history, (position * 4) as u64, bytemuck::cast_slice(tokens));
    }

    /// Where the sampler's kernels read and write.
    fn bound(&self) -> Bound<'_> {
        let (logits, token) = (self.decode.logits.f32(), &self.sequence.token);
        Bound { sequence: &self.sequence, n_vocab: self.plan.n_vocab, logits, token }
    }

    /// Bits of the magnitude from which the guard trips.
    pub(super) fn limit_bits(&self) -> u32 {
        self.execution.guard_limit.map_or(UNGUARDED, f32::to_bits)
    }

    /// Makes the steps that `sampling` needs and writes its rules, where they are not there yet. Returns whether it differs from
    /// the one before.
    pub(super) fn prepare_sampler(&mut self, sampling: &Sampling) -> Result<bool> {
        if self.sampling.as_ref() == Some(sampling) {
            return Ok(false);
        }
        sampling.check(self.plan.n_vocab)?;
        if !sampling.is_plain() {
            if self.decode.chains.is_none() {
                self.decode.chains = Some(Chains::new(&self.gpu, &self.bound())?);
            }
            write(&self.gpu, &self.sequence.rules, 0, &rules(sampling));
        }
        self.sampling = Some(sampling.clone());
        Ok(true)
    }

    /// The steps of one draw, which `prepare_sampler` made.
    pub(super) fn sample_steps(&self, sampling: &Sampling) -> &[Step] {
        match &self.decode.chains {
            Some(chains) if !sampling.is_plain() => chains.steps(sampling),
            _ => &self.decode.sample,
        }
    }
}

fn decode_instance(
    gpu: &Gpu,
    allocator: &mut Allocator,
    plan: &Plan,
    weights: &GpuWeights,
    sequence: &Sequence,
) -> Result<Decode> {
    let ops: [&[_]; 4] = [&plan.body, &plan.head, &plan.sample, &plan.embed];
    let mut lowering =
        Lowering::new(allocator, gpu, plan, weights, sequence, 1, gpu.matmul_form(), &sequence.token, &ops);
    let body = lowering.body(allocator)?;
    let body_ends = lowering.ends();
    let head = lowering.steps(allocator, &plan.head)?;
    let head_ends = lowering.ends();
    Ok(Decode {
        body,
        head,
        sample: lowering.steps(allocator, &plan.sample)?,
        embed: lowering.steps(allocator, &plan.embed)?,
        embedding: lowering.buffer(plan.embedding),
        hidden: lowering.buffer(plan.hidden),
        logits: lowering.buffer(plan.logits),
        chains: None,
        reach: Reach::new(body_ends, head_ends, lowering),
    })
}

fn prefill_instance(
    gpu: &Gpu,
    allocator: &mut Allocator,
    plan: &Plan,
    weights: &GpuWeights,
    sequence: &Sequence,
) -> Result<Prefill> {
    let capacity = prefill_rows(gpu, plan, sequence.n_ctx);
    let tokens = allocator.buffer("tokens", (capacity * 4) as u64, STORAGE);
    let mut lowering =
        Lowering::new(allocator, gpu, plan, weights, sequence, capacity, gpu.matmul_form(), &tokens, &[&plan.body]);
    let body = lowering.body(allocator)?;
    let (hidden, ends) = (lowering.buffer(plan.hidden), lowering.ends());
    Ok(Prefill { capacity, tokens, body, hidden, reach: Reach::new(ends, Vec::new(), lowering) })
}

/// Rows of a prefill chunk: a multiple of the matmul tile, more than one.
fn prefill_rows(gpu: &Gpu, plan: &Plan, n_ctx: usize) -> usize {
    let widths = plan.buffers.iter().enumerate().filter(|(id, _)| *id != plan.logits.0 as usize);
    let widest = widths.map(|(_, shape)| match shape {
        Shape::F32 { width } | Shape::Q8 { width } => *width,
    });
    let row_bytes = (4 * widest.max().unwrap_or(1)).max(partials_bytes(&plan.body, CHUNK, n_ctx) as usize / CHUNK);
    let fitting = MAX_CHUNK_BYTES / row_bytes;
    let wanted = if gpu.is_software() { SOFTWARE_CHUNK } else { CHUNK };
    let tile = PREFILL_TILE as usize;
    wanted.min(n_ctx.next_multiple_of(tile)).min(fitting / tile * tile).max(tile)
}

impl Backend for GpuBackend {
    fn info(&self) -> &BackendInfo {
        &self.info
    }

    fn max_chunk(&self) -> usize {
        self.prefill.capacity
    }

    async fn feed(&mut self, tokens: &[u32], position: usize) -> Result<()> {
        check_feed(tokens, position, self.limits(), self.prefill.capacity)?;
        self.write_running(position);
        (self.fed_rows, self.fed_position) = (tokens.len(), position);
        let (target, body) = match tokens.len() {
            1 => (&self.sequence.token, &self.decode.body),
            _ => (&self.prefill.tokens, &self.prefill.body),
        };
        write(&self.gpu, target, 0, bytemuck::cast_slice(tokens));
        self.write_history(tokens, position);
        let mut commands = self.timed_commands(Phase::Prefill);
        commands.record(body, tokens.len() as u32, position);
        self.submit_alone(commands).await?;
        if let Some(ledger) = self.timers.ledger() {
            ledger.add_tokens(Phase::Prefill, tokens.len());
        }
        self.gpu.check()
    }

    async fn head(&mut self, row: usize) -> Result<()> {
        let mut commands = self.timed_commands(Phase::Prefill);
        self.take_row(&mut commands, row)?;
        // Where the guard finds the row, and that it is running.
        self.write_running(self.fed_position + row);
        commands.record(&self.decode.head, 1, 0);
        self.submit_alone(commands).await?;
        self.gpu.check()
    }

    async fn read_logits(&mut self) -> Result<Vec<f32>> {
        let commands = self.commands();
        self.read_row(commands, Readback::Logits, self.decode.logits.f32(), self.plan.n_vocab).await
    }

    async fn embedding(&mut self, row: usize) -> Result<Vec<f32>> {
        let mut commands = self.commands();
        self.take_row(&mut commands, row)?;
        self.write_running(self.fed_position + row);
        commands.record(&self.decode.embed, 1, 0);
        let embedding = &self.decode.embedding;
        self.read_row(commands, Readback::Embedding, embedding.f32(), embedding.row_bytes() as usize / 4).await
    }

    async fn burst(&mut self, burst: Burst<'_>) -> Result<Drawn> {
        self.submit_burst(burst)?.drawn().await
    }

    async fn take_trip(&mut self) -> Result<Option<Trip>> {
        let words = self.read_row(self.commands(), Readback::Guard, &self.sequence.tripped, 1).await?;
        self.reset_guard();
        Ok(words.first().and_then(|word| Trip::from_word(word.to_bits())))
    }

    fn configure(&mut self, execution: Execution) -> Result<()> {
        self.sequence.ring.ensure(execution.ring)?;
        if self.bound_to != execution.ring {
            self.decode.sample = bind(&self.gpu, &self.bound().plain())?;
            self.decode.chains = None;
            self.sampling = None;
            self.bound_to = execution.ring;
        }
        self.execution = execution;
        self.timers.set(execution.timing, execution.split_submits);
        self.reset_guard();
        Ok(())
    }

    fn counters(&self) -> Counters {
        self.gpu.tally().counters() - self.baseline
    }
}

impl GpuBackend {
    /// Measures the device at its best: bytes a second of streaming reads, seconds of an empty dependent dispatch.
    pub async fn measure_floor(&self) -> Result<(f64, f64)> {
        floor::measure(&self.gpu).await
    }

    /// Bytes of one row of the hidden state.
    fn hidden_bytes(&self) -> u64 {
        self.decode.hidden.row_bytes()
    }

    /// What the ring has done.
    pub fn ring_counters(&self) -> RingCounters {
        self.sequence.ring.counters()
    }

    /// Makes every readback an error whose purpose is not among `allowed`; `None` allows all.
    pub fn restrict_readbacks(&self, allowed: Option<Vec<Readback>>) {
        self.gpu.restrict_readbacks(allowed);
    }

    /// The logits of the last `head` or burst step, `[n_vocab]` f32, on the device.
    pub fn logits_buffer(&self) -> &wgpu::Buffer {
        self.decode.logits.f32()
    }

    pub(super) fn commands(&self) -> Commands {
        Commands::splitting(&self.gpu, self.execution.split_submits)
    }

    /// Commands that are timed as work of `phase`, where anything is.
    pub(super) fn timed_commands(&self, phase: Phase) -> Commands {
        self.commands().watched(self.timers.watch(phase))
    }

    /// Submits work whose results nobody reads.
    async fn submit_alone(&mut self, commands: Commands) -> Result<()> {
        let (_, times) = commands.submit_timed()?;
        self.timers.keep(times).await
    }

    /// What was asked to be timed.
    pub(crate) fn timing(&self) -> Timing {
        self.timers.timing()
    }

    /// Whether the device can time anything.
    pub(crate) fn has_timestamps(&self) -> bool {
        self.gpu.device().features().contains(wgpu::Features::TIMESTAMP_QUERY)
    }

    /// What was timed since the last call or [`GpuBackend::clear_times`].
    pub(crate) async fn take_ledger(&mut self) -> Result<Ledger> {
        self.timers.take_ledger().await
    }

    /// Forgets what was timed.
    pub(crate) fn clear_times(&mut self) {
        self.timers.clear();
    }

    /// Milliseconds the device was busy in `phase`, where submits were timed.
    pub(crate) fn busy_ms(&self, phase: Phase) -> Option<f64> {
        self.timers.ledger().and_then(|ledger| ledger.busy_ms(phase))
    }

    pub(super) fn reset_guard(&self) {
        write(&self.gpu, &self.sequence.tripped, 0, &UNTRIPPED.to_le_bytes());
    }

    /// Records that row `row` of the last feed becomes the hidden state of the decode instance.
    fn take_row(&self, commands: &mut Commands, row: usize) -> Result<()> {
        if row >= self.fed_rows {
            return Err(Error::BadOption {
                option: "row",
                found: row.to_string(),
                expected: "a row of the last chunk",
            });
        }
        if self.fed_rows > 1 {
            let bytes = self.hidden_bytes();
            commands.copy(self.prefill.hidden.f32(), row as u64 * bytes, self.decode.hidden.f32(), bytes);
        }
        Ok(())
    }

    /// Submits, and reads the first `n` values of `buffer`.
    async fn read_row(
        &self,
        mut commands: Commands,
        purpose: Readback,
        buffer: &wgpu::Buffer,
        n: usize,
    ) -> Result<Vec<f32>> {
        let bytes = (n * 4) as u64;
        commands.copy(buffer, 0, &self.row_staging, bytes);
        commands.submit();
        let data = readback::read(&self.gpu, purpose, &self.row_staging, bytes).await?;
        Ok(bytemuck::pod_collect_to_vec(&data))
    }
}
