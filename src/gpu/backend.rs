//! The backend: sequences of a plan on a device.

mod trace;

use super::driver::{Buffer, Usage};
use std::sync::Arc;

use bytemuck::Zeroable;

use super::buffers::{Allocator, write};
use super::device::Gpu;
use super::floor;
use super::instances::{Decode, Prefill};
use super::kv::{SIDES, to_device, to_host};
use super::params::{RowEntry, RowsHeader, State, UNGUARDED, state_at};
use super::readback;
use super::recorder::Commands;
use super::sampler::{Bound, Draws, RULES_BYTES, Sampler, rules};
use super::sequence::Sequence;
use super::timing::Timers;
use super::weights::GpuWeights;
use super::words::read_words;
use crate::engine::backend::{
    Backend, BackendInfo, Burst, Capacity, Counters, Drawn, Execution, ID_BITS, Limits, MAX_GUARDED_LAYERS, Readback,
    RingCounters, RingSize, Row, Timing, Trip, UNTRIPPED, check_fed, check_feed, check_page, check_page_bytes,
    check_snapshot, check_state_bytes,
};
use crate::engine::ledger::{Ledger, Phase};
use crate::error::{Error, Result};
use crate::plan::Plan;
use crate::sample::Sampling;

/// The host's knowledge of a slot.
#[derive(Debug, Clone, Default)]
pub(super) struct SlotInfo {
    /// How the device was told to draw.
    pub(super) sampling: Option<Sampling>,
    /// The ids that end the row, as the device has them.
    pub(super) stops: Vec<u32>,
    /// Draws since the slot's state was written, as the device counts them.
    pub(super) draws: u32,
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
    pub(super) row_staging: Buffer,
    /// A page of a layer on its way to another.
    page_scratch: Buffer,
    pub(super) execution: Execution,
    /// The size of the ring that the sampler's steps are bound to.
    bound_to: RingSize,
    pub(super) timers: Timers,
    /// Slot, rows and first position of the last feed; one row is the decode instance's, none are left after a step of several slots.
    pub(super) fed_slot: usize,
    pub(super) fed_rows: usize,
    pub(super) fed_position: usize,
    pub(super) slots: Vec<SlotInfo>,
    /// Counters when the backend was made.
    baseline: Counters,
    // Held for the buffers' sake.
    _weights: GpuWeights,
}

impl GpuBackend {
    /// A backend with empty slots.
    ///
    /// # Errors
    /// `OutOfDeviceMemory` where something does not fit, `ContextFull` where a layer's cache exceeds what the device can bind,
    /// `Device` where the device failed, `BadOption` for a capacity that cannot be or a geometry the kernels do not have.
    pub async fn new(
        gpu: &Gpu,
        plan: Arc<Plan>,
        mut weights: GpuWeights,
        capacity: impl Into<Capacity>,
    ) -> Result<Self> {
        let capacity = capacity.into();
        let baseline = gpu.tally().counters();
        weights.finish().await?;
        plan.check_weights(|id| weights.has(id))?;
        if plan.n_layers() > MAX_GUARDED_LAYERS {
            let found = plan.n_layers().to_string();
            return Err(Error::BadOption { option: "layers", found, expected: "at most 1022" });
        }
        if plan.n_vocab >= 1 << ID_BITS {
            let found = plan.n_vocab.to_string();
            return Err(Error::BadOption { option: "vocabulary size", found, expected: "below 2^24" });
        }
        let mut allocator = Allocator::new(gpu);
        let sequence = Sequence::new(gpu, &mut allocator, &plan, capacity)?;
        let decode = Decode::new(gpu, &mut allocator, &plan, &weights, &sequence)?;
        let prefill = Prefill::new(gpu, &mut allocator, &plan, &weights, &sequence)?;
        let row_bytes = (plan.n_vocab as u64 * 4).max(decode.embedding.row_bytes());
        let row_staging = allocator.buffer("row staging", row_bytes, Usage::Staging);
        let page_bytes = plan.layers.iter().map(|layer| layer.page_bytes() as u64).max().unwrap_or(0);
        let page_scratch = allocator.buffer("page scratch", page_bytes, Usage::Storage);
        allocator.finish().await?;
        gpu.check()?;
        Ok(GpuBackend {
            info: BackendInfo { backend: gpu.info().backend, adapter: gpu.adapter().name.clone() },
            gpu: gpu.clone(),
            plan,
            sequence,
            prefill,
            decode,
            row_staging,
            page_scratch,
            execution: Execution::default(),
            bound_to: RingSize::default(),
            timers: Timers::new(gpu),
            fed_slot: 0,
            fed_rows: 1,
            fed_position: 0,
            slots: vec![SlotInfo::default(); capacity.slots],
            baseline,
            _weights: weights,
        })
    }

    pub(super) fn limits(&self) -> Limits {
        let capacity = self.sequence.capacity;
        Limits { n_vocab: self.plan.n_vocab, capacity, steps: self.sequence.ring.size().steps }
    }

    /// Tells the device which rows there are.
    pub(super) fn write_rows(&self, rows: RowsHeader) {
        write(&self.gpu, &self.sequence.state, 0, bytemuck::bytes_of(&rows));
    }

    pub(super) fn write_state(&mut self, slot: usize, state: State) {
        write(&self.gpu, &self.sequence.state, state_at(slot), bytemuck::bytes_of(&state));
        self.slots[slot].draws = state.step;
    }

    /// A running slot at `position`; how it draws is to be told anew.
    fn write_running(&mut self, slot: usize, position: usize) {
        self.write_state(slot, State { limit: self.limit_bits(), ..State::at(position) });
        self.slots[slot].sampling = None;
    }

    pub(super) fn write_history(&self, slot: usize, tokens: &[u32], position: usize) {
        let at = slot * self.sequence.history_a_slot() + position;
        write(&self.gpu, &self.sequence.history, (at * 4) as u64, bytemuck::cast_slice(tokens));
    }

    /// Where the sampler's kernels read and write.
    fn bound(&self) -> Bound<'_> {
        Bound { sequence: &self.sequence, n_vocab: self.plan.n_vocab, logits: self.decode.logits.f32() }
    }

    /// Bits of the magnitude from which the guard trips.
    pub(super) fn limit_bits(&self) -> u32 {
        self.execution.guard_limit.map_or(UNGUARDED, f32::to_bits)
    }

    /// Makes the steps that `draws` need.
    pub(super) fn prepare_sampler(&mut self, draws: Draws) -> Result<()> {
        let bound = Bound { sequence: &self.sequence, n_vocab: self.plan.n_vocab, logits: self.decode.logits.f32() };
        self.decode.sampler.prepare(&self.gpu, &bound, draws)
    }

    /// Writes a slot's rules where they are not there yet. Returns whether they differ from those before.
    pub(super) fn write_rules(&mut self, slot: usize, sampling: &Sampling) -> bool {
        if self.slots[slot].sampling.as_ref() == Some(sampling) {
            return false;
        }
        if !sampling.is_plain() {
            write(&self.gpu, &self.sequence.rules, (slot * RULES_BYTES) as u64, &rules(sampling));
        }
        self.slots[slot].sampling = Some(sampling.clone());
        true
    }
}

impl Backend for GpuBackend {
    fn info(&self) -> &BackendInfo {
        &self.info
    }

    fn capacity(&self) -> Capacity {
        self.sequence.capacity
    }

    fn max_chunk(&self) -> usize {
        self.prefill.capacity
    }

    fn configure(&mut self, execution: Execution) -> Result<()> {
        self.sequence.ring.ensure(execution.ring)?;
        if self.bound_to != execution.ring {
            self.decode.sampler = Sampler::bind(&self.gpu, &self.bound())?;
            self.bound_to = execution.ring;
        }
        self.execution = execution;
        self.timers.set(execution.timing, execution.split_submits);
        (0..self.slots.len()).for_each(|slot| self.reset_guard(slot));
        Ok(())
    }

    fn set_pages(&mut self, slot: usize, first: usize, pages: &[u32]) -> Result<()> {
        let at = self.sequence.tables.set(slot, first, pages)?;
        write(&self.gpu, &self.sequence.block_table, (at * 4) as u64, bytemuck::cast_slice(pages));
        Ok(())
    }

    fn begin(&mut self, slot: usize, tokens: &[u32]) -> Result<()> {
        self.limits().check_sequence(slot, tokens)?;
        self.write_history(slot, tokens, 0);
        self.reset_guard(slot);
        Ok(())
    }

    fn copy_page(&mut self, from: u32, to: u32) -> Result<()> {
        check_page(from, self.sequence.capacity)?;
        check_page(to, self.sequence.capacity)?;
        let mut commands = self.commands();
        for (shape, (keys, values)) in self.plan.layers.iter().zip(&self.sequence.cache) {
            let bytes = shape.page_bytes() as u64;
            for buffer in [keys, values] {
                commands.copy(buffer, u64::from(from) * bytes, &self.page_scratch, bytes);
                commands.copy_to(&self.page_scratch, 0, buffer, u64::from(to) * bytes, bytes);
            }
        }
        commands.submit();
        self.gpu.check()
    }

    async fn read_page(&mut self, page: u32) -> Result<Vec<u8>> {
        check_page(page, self.sequence.capacity)?;
        let mut bytes = Vec::new();
        for layer in 0..self.plan.layers.len() {
            bytes.extend(self.layer_page(Readback::Page, layer, page).await?);
        }
        Ok(bytes)
    }

    fn write_page(&mut self, page: u32, bytes: &[u8]) -> Result<()> {
        check_page(page, self.sequence.capacity)?;
        check_page_bytes(&self.plan, bytes)?;
        let mut rest = bytes;
        for (shape, (keys, values)) in self.plan.layers.iter().zip(&self.sequence.cache) {
            let n = shape.page_bytes();
            for (side, buffer) in SIDES.into_iter().zip([keys, values]) {
                let (here, after) = rest.split_at(n);
                write(&self.gpu, buffer, u64::from(page) * n as u64, &to_device(*shape, side, here));
                rest = after;
            }
        }
        Ok(())
    }

    fn save_state(&mut self, slot: usize, snapshot: usize) -> Result<()> {
        self.limits().check_slot(slot)?;
        check_snapshot(snapshot, self.sequence.capacity)?;
        let mut commands = self.commands();
        self.sequence.recurrent.iter().for_each(|layer| layer.save(&mut commands, slot, snapshot));
        commands.submit();
        self.gpu.check()
    }

    fn load_state(&mut self, slot: usize, snapshot: usize) -> Result<()> {
        self.limits().check_slot(slot)?;
        check_snapshot(snapshot, self.sequence.capacity)?;
        let mut commands = self.commands();
        self.sequence.recurrent.iter().for_each(|layer| layer.load(&mut commands, slot, snapshot));
        commands.submit();
        self.gpu.check()
    }

    async fn read_state(&mut self, snapshot: usize) -> Result<Vec<u8>> {
        check_snapshot(snapshot, self.sequence.capacity)?;
        let mut bytes = Vec::new();
        for (buffer, entry) in self.sequence.recurrent.iter().flat_map(|layer| layer.saved()) {
            let n = entry as usize / 4;
            let words = read_words(&self.gpu, Readback::Page, buffer, snapshot * n, n).await?;
            bytes.extend_from_slice(bytemuck::cast_slice(&words));
        }
        Ok(bytes)
    }

    fn write_state(&mut self, snapshot: usize, bytes: &[u8]) -> Result<()> {
        check_snapshot(snapshot, self.sequence.capacity)?;
        check_state_bytes(&self.plan, bytes)?;
        let mut rest = bytes;
        for (buffer, entry) in self.sequence.recurrent.iter().flat_map(|layer| layer.saved()) {
            let (here, after) = rest.split_at(entry as usize);
            write(&self.gpu, buffer, snapshot as u64 * entry, here);
            rest = after;
        }
        Ok(())
    }

    async fn feed(&mut self, slot: usize, tokens: &[u32], position: usize) -> Result<()> {
        check_feed(slot, tokens, position, self.limits(), &self.sequence.tables, self.prefill.capacity)?;
        self.write_running(slot, position);
        (self.fed_slot, self.fed_rows, self.fed_position) = (slot, tokens.len(), position);
        let positions: Vec<usize> = (position..).take(tokens.len()).collect();
        let mut commands = self.timed_commands(Phase::Prefill);
        if tokens.len() == 1 {
            self.write_rows(RowsHeader::single(slot));
            write(&self.gpu, &self.sequence.tokens, (slot * 4) as u64, bytemuck::cast_slice(tokens));
            commands.record(&self.decode.instance(1).body, &positions);
        } else {
            self.write_rows(RowsHeader::chunk(slot, tokens.len()));
            write(&self.gpu, &self.prefill.space.tokens, 0, bytemuck::cast_slice(tokens));
            commands.record(&self.prefill.body, &positions);
        }
        self.write_history(slot, tokens, position);
        self.submit_alone(commands).await?;
        if let Some(ledger) = self.timers.ledger() {
            ledger.add_tokens(Phase::Prefill, tokens.len());
        }
        self.gpu.check()
    }

    async fn head(&mut self, slot: usize, row: usize) -> Result<()> {
        check_fed(slot, self.fed_slot)?;
        let mut commands = self.timed_commands(Phase::Prefill);
        self.take_row(&mut commands, row)?;
        // Where the guard finds the row, and that it is running.
        self.write_running(slot, self.fed_position + row);
        self.write_rows(RowsHeader::single(slot));
        commands.record(&self.decode.instance(1).head, &[0]);
        self.submit_alone(commands).await?;
        self.gpu.check()
    }

    async fn forward(&mut self, rows: &[Row<'_>]) -> Result<()> {
        Burst { rows, steps: 1 }.check_forward(self.limits(), &self.sequence.tables)?;
        let mut entries = Vec::with_capacity(rows.len());
        for row in rows {
            self.write_row(row);
            entries.push(RowEntry { slot: row.slot as u32, ..Zeroable::zeroed() });
        }
        self.write_rows(RowsHeader::batch(&entries));
        let positions: Vec<usize> = rows.iter().map(|row| row.position).collect();
        let mut commands = self.timed_commands(Phase::Decode);
        let instance = self.decode.instance(rows.len());
        commands.record(&instance.body, &positions);
        commands.record(&instance.head, &positions);
        self.fed_rows = 0;
        self.submit_alone(commands).await?;
        self.gpu.check()
    }

    async fn read_logits(&mut self, slot: usize) -> Result<Vec<f32>> {
        self.limits().check_slot(slot)?;
        let (commands, n) = (self.commands(), self.plan.n_vocab);
        self.read_row(commands, Readback::Logits, self.decode.logits.f32(), slot * n, n).await
    }

    async fn embedding(&mut self, row: usize) -> Result<Vec<f32>> {
        let mut commands = self.commands();
        self.take_row(&mut commands, row)?;
        self.write_running(self.fed_slot, self.fed_position + row);
        self.write_rows(RowsHeader::single(self.fed_slot));
        commands.record(&self.decode.embed, &[0]);
        let embedding = &self.decode.embedding;
        self.read_row(commands, Readback::Embedding, embedding.f32(), 0, embedding.row_bytes() as usize / 4).await
    }

    async fn burst(&mut self, burst: Burst<'_>) -> Result<Vec<Drawn>> {
        self.submit_burst(burst)?.drawn().await
    }

    async fn take_trip(&mut self, slot: usize) -> Result<Option<Trip>> {
        self.limits().check_slot(slot)?;
        let words = self.read_row(self.commands(), Readback::Guard, &self.sequence.tripped, slot, 1).await?;
        self.reset_guard(slot);
        Ok(words.first().and_then(|word| Trip::from_word(word.to_bits())))
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

    /// The bytes of a layer's keys and then of its values in one page, as [`KvShape`](crate::plan::KvShape) says.
    async fn layer_page(&self, purpose: Readback, layer: usize, page: u32) -> Result<Vec<u8>> {
        let (shape, (keys, values)) = (self.plan.layers[layer], &self.sequence.cache[layer]);
        let n = shape.page_bytes() / 4;
        let mut bytes = Vec::new();
        for (side, buffer) in SIDES.into_iter().zip([keys, values]) {
            let words = read_words(&self.gpu, purpose, buffer, page as usize * n, n).await?;
            bytes.extend(to_host(shape, side, bytemuck::cast_slice(&words)));
        }
        Ok(bytes)
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

    /// The slots' logits, `[slots, n_vocab]` f32, on the device.
    pub fn logits_buffer(&self) -> &Buffer {
        self.decode.logits.f32()
    }

    pub(super) fn commands(&self) -> Commands {
        Commands::watched(&self.gpu, self.execution.split_submits, None)
    }

    /// Commands that are timed as work of `phase`, where anything is.
    pub(super) fn timed_commands(&self, phase: Phase) -> Commands {
        Commands::watched(&self.gpu, self.execution.split_submits, self.timers.watch(phase))
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
        self.gpu.info().has_timestamps
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

    pub(super) fn reset_guard(&self, slot: usize) {
        write(&self.gpu, &self.sequence.tripped, (slot * 4) as u64, &UNTRIPPED.to_le_bytes());
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
            let hidden = self.prefill.space.buffer(self.plan.hidden);
            commands.copy(hidden.f32(), row as u64 * bytes, self.decode.hidden.f32(), bytes);
        }
        Ok(())
    }

    /// Submits, and reads `n` values of `buffer` from `first` on.
    async fn read_row(
        &self,
        mut commands: Commands,
        purpose: Readback,
        buffer: &Buffer,
        first: usize,
        n: usize,
    ) -> Result<Vec<f32>> {
        let bytes = (n * 4) as u64;
        commands.copy(buffer, (first * 4) as u64, &self.row_staging, bytes);
        commands.submit();
        let data = readback::read(&self.gpu, purpose, &self.row_staging, bytes).await?;
        Ok(bytemuck::pod_collect_to_vec(&data))
    }
}
