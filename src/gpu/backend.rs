//! The backend: one sequence of a plan on a device.

use std::sync::Arc;

use super::buffers::{Allocator, STAGING, STORAGE, write};
use super::burst::MAX_IN_FLIGHT;
use super::device::Gpu;
use super::floor;
use super::ops::{Lowering, PlanBuffer, partials_bytes};
use super::params::State;
use super::pipelines::PREFILL_TILE;
use super::readback::{self, StagingPool};
use super::recorder::{Recorder, Step, encoder, submit};
use super::sampler::{Bound, Chains, rules};
use super::sequence::{RING, Sequence};
use super::weights::GpuWeights;
use crate::engine::backend::{Backend, BackendInfo, Burst, Counters};
use crate::error::{Error, Result};
use crate::plan::{Plan, Shape};
use crate::sample::Sampling;

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
}

/// The whole plan for one row.
pub(super) struct Decode {
    pub(super) body: Vec<Step>,
    pub(super) head: Vec<Step>,
    pub(super) sample: Vec<Step>,
    hidden: PlanBuffer,
    logits: PlanBuffer,
    /// Draws that are not plain; made when first asked for.
    chains: Option<Chains>,
}

/// A model on a GPU.
pub struct GpuBackend {
    pub(super) gpu: Gpu,
    info: BackendInfo,
    plan: Arc<Plan>,
    pub(super) sequence: Sequence,
    prefill: Prefill,
    pub(super) decode: Decode,
    /// Where the host reads drawn tokens: one buffer a burst in flight.
    pub(super) token_staging: StagingPool,
    /// Where the host reads logits.
    logits_staging: wgpu::Buffer,
    /// Rows of the last feed; one row is the decode instance's.
    pub(super) fed_rows: usize,
    /// What `sequence.rules` holds.
    rules: Option<Sampling>,
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
        let mut allocator = Allocator::new(gpu);
        let sequence = Sequence::new(gpu, &mut allocator, &plan, n_ctx.max(1))?;
        let decode = decode_instance(gpu, &mut allocator, &plan, &weights, &sequence)?;
        let prefill = prefill_instance(gpu, &mut allocator, &plan, &weights, &sequence)?;
        let token_staging =
            (0..MAX_IN_FLIGHT).map(|_| allocator.buffer("token staging", (RING * 4) as u64, STAGING)).collect();
        let logits_staging = allocator.buffer("logits staging", (plan.n_vocab * 4) as u64, STAGING);
        allocator.finish().await?;
        gpu.check()?;
        Ok(GpuBackend {
            info: BackendInfo { backend: "wgpu", adapter: gpu.adapter().name.clone() },
            gpu: gpu.clone(),
            plan,
            sequence,
            prefill,
            decode,
            token_staging: StagingPool::new(token_staging),
            logits_staging,
            fed_rows: 1,
            rules: None,
            baseline,
            _weights: weights,
        })
    }

    pub(super) fn check_tokens(&self, tokens: &[u32]) -> Result<()> {
        match tokens.iter().find(|id| **id as usize >= self.plan.n_vocab) {
            Some(&id) => Err(Error::BadToken { id, n_vocab: self.plan.n_vocab }),
            None => Ok(()),
        }
    }

    pub(super) fn check_room(&self, needed: usize) -> Result<()> {
        if needed > self.sequence.n_ctx {
            return Err(Error::ContextFull { needed, limit: self.sequence.n_ctx });
        }
        Ok(())
    }

    pub(super) fn write_state(&self, state: State) {
        write(&self.gpu, &self.sequence.state, 0, bytemuck::bytes_of(&state));
    }

    pub(super) fn write_history(&self, tokens: &[u32], position: usize) {
        write(&self.gpu, &self.sequence.history, (position * 4) as u64, bytemuck::cast_slice(tokens));
    }

    /// Makes the steps that `sampling` needs and writes its rules, where they are not there yet.
    pub(super) fn prepare_sampler(&mut self, sampling: &Sampling) -> Result<()> {
        if sampling.is_plain() {
            return sampling.check(self.plan.n_vocab);
        }
        if self.rules.as_ref() != Some(sampling) {
            sampling.check(self.plan.n_vocab)?;
            if self.decode.chains.is_none() {
                let (logits, token) = (self.decode.logits.f32(), &self.sequence.token);
                let bound = Bound { sequence: &self.sequence, n_vocab: self.plan.n_vocab, logits, token };
                self.decode.chains = Some(Chains::new(&self.gpu, &bound)?);
            }
            write(&self.gpu, &self.sequence.rules, 0, &rules(sampling));
            self.rules = Some(sampling.clone());
        }
        Ok(())
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
    let ops: [&[_]; 3] = [&plan.body, &plan.head, &plan.sample];
    let mut lowering =
        Lowering::new(allocator, gpu, plan, weights, sequence, 1, gpu.matmul_form(), &sequence.token, &ops);
    Ok(Decode {
        body: lowering.steps(allocator, &plan.body)?,
        head: lowering.steps(allocator, &plan.head)?,
        sample: lowering.steps(allocator, &plan.sample)?,
        hidden: lowering.buffer(plan.hidden),
        logits: lowering.buffer(plan.logits),
        chains: None,
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
    let body = lowering.steps(allocator, &plan.body)?;
    Ok(Prefill { capacity, tokens, body, hidden: lowering.buffer(plan.hidden) })
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
        self.check_tokens(tokens)?;
        self.check_room(position + tokens.len())?;
        if tokens.is_empty() || tokens.len() > self.prefill.capacity {
            return Err(Error::BadOption {
                option: "tokens of a chunk",
                found: tokens.len().to_string(),
                expected: "at least 1 and at most max_chunk",
            });
        }
        self.fed_rows = tokens.len();
        let (target, body) = match tokens.len() {
            1 => (&self.sequence.token, &self.decode.body),
            _ => (&self.prefill.tokens, &self.prefill.body),
        };
        write(&self.gpu, target, 0, bytemuck::cast_slice(tokens));
        self.write_history(tokens, position);
        self.write_state(State { position: position as u32, ..State::default() });
        let mut commands = encoder(&self.gpu);
        Recorder::new(&self.gpu, &mut commands).record(body, tokens.len() as u32, position);
        submit(&self.gpu, commands);
        self.gpu.check()
    }

    async fn head(&mut self, row: usize) -> Result<()> {
        if row >= self.fed_rows {
            return Err(Error::BadOption {
                option: "row",
                found: row.to_string(),
                expected: "a row of the last chunk",
            });
        }
        let mut commands = encoder(&self.gpu);
        if self.fed_rows > 1 {
            let to = self.decode.hidden.f32();
            let bytes = self.hidden_bytes();
            commands.copy_buffer_to_buffer(self.prefill.hidden.f32(), row as u64 * bytes, to, 0, bytes);
        }
        Recorder::new(&self.gpu, &mut commands).record(&self.decode.head, 1, 0);
        submit(&self.gpu, commands);
        self.gpu.check()
    }

    async fn read_logits(&mut self) -> Result<Vec<f32>> {
        let bytes = (self.plan.n_vocab * 4) as u64;
        let mut commands = encoder(&self.gpu);
        commands.copy_buffer_to_buffer(self.decode.logits.f32(), 0, &self.logits_staging, 0, bytes);
        submit(&self.gpu, commands);
        let data = readback::read(&self.gpu, &self.logits_staging, bytes).await?;
        Ok(bytemuck::pod_collect_to_vec(&data))
    }

    async fn burst(&mut self, burst: Burst<'_>) -> Result<Vec<u32>> {
        self.run_burst(burst).await
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
}
