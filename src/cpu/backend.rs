//! A model on the CPU.

mod trace;

use std::sync::Arc;

use super::buffers::Buffers;
use super::kv::LayerCache;
use super::machine::{Machine, Place, Rows};
use super::pool::Pool;
use super::recurrent::LayerStates;
use super::timing::{Part, Stopwatch};
pub use super::weights::CpuWeights;
use crate::engine::backend::{
    Backend, BackendInfo, BlockTables, Burst, Capacity, Counters, Drawn, Execution, First, Limits, RingSize, Row,
    RowEnd, Timing, Trip, UNTRIPPED, check_fed, check_feed, check_page, check_page_bytes, check_snapshot,
    check_state_bytes,
};
use crate::engine::clock::now_ms;
use crate::engine::ledger::{Ledger, Phase};
use crate::error::{Error, Result};
use crate::plan::Plan;
use crate::sample::draw;

/// Most tokens of one `feed`.
const MAX_CHUNK: usize = 128;

/// A model on the CPU.
pub struct CpuBackend {
    info: BackendInfo,
    machine: Machine,
    capacity: Capacity,
    /// Buffers of one row: decoding one sequence, and the head after a chunk.
    single: Buffers,
    /// Buffers of the last chunk's number of rows.
    chunk: Buffers,
    /// Buffers of the last step of several sequences.
    batch: Buffers,
    /// The slot of the last `feed`, and whether it used `single`.
    fed_slot: usize,
    fed_single: bool,
    /// Steps of a burst, as on a device.
    ring_steps: usize,
    slots: Vec<Slot>,
}

/// A sequence: the token it drew last, why it ended, and what it may still draw.
#[derive(Debug, Clone, Default)]
struct Slot {
    last_token: u32,
    end: Option<RowEnd>,
    left: usize,
    /// Tokens by position.
    history: Vec<u32>,
    /// `[n_vocab]`, once computed.
    logits: Vec<f32>,
}

impl Slot {
    fn keep_logits(&mut self, logits: &[f32]) {
        self.logits.clear();
        self.logits.extend_from_slice(logits);
    }
}

impl CpuBackend {
    /// A backend with an empty cache, on every core.
    ///
    /// # Errors
    /// `BadTensor` where a weight of the plan was not loaded, `BadOption` for a capacity that cannot be.
    pub fn new(plan: Arc<Plan>, weights: CpuWeights, capacity: impl Into<Capacity>) -> Result<Self> {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        Self::with_threads(plan, weights, capacity, threads)
    }

    /// A backend on a fixed number of threads.
    ///
    /// # Errors
    /// Those of [`CpuBackend::new`].
    pub fn with_threads(
        plan: Arc<Plan>,
        weights: CpuWeights,
        capacity: impl Into<Capacity>,
        threads: usize,
    ) -> Result<Self> {
        let capacity = capacity.into();
        capacity.check()?;
        plan.check_weights(|id| weights.has(id))?;
        let ropes = plan.ropes.iter().map(|table| table.values(capacity.n_ctx)).collect();
        let cache = plan.layers.iter().map(|shape| LayerCache::new(*shape)).collect();
        let recurrent = plan.recurrent.iter().map(|heads| LayerStates::new(*heads, capacity.slots, capacity.snapshots));
        let recurrent = recurrent.collect();
        let (pool, watch) = (Arc::new(Pool::new(threads)), Stopwatch::new(&plan));
        let adapter = format!("{} threads, {}", pool.threads(), super::dot::instruction_set());
        let limit = f32::INFINITY.to_bits();
        let tripped = vec![UNTRIPPED; capacity.slots];
        let tables = BlockTables::new(capacity);
        Ok(CpuBackend {
            info: BackendInfo { backend: "cpu", adapter },
            capacity,
            single: Buffers::new(&plan, 1),
            chunk: Buffers::new(&plan, 1),
            batch: Buffers::new(&plan, 1),
            fed_slot: 0,
            fed_single: true,
            ring_steps: RingSize::default().steps,
            slots: vec![Slot::default(); capacity.slots],
            machine: Machine { plan, weights, ropes, cache, recurrent, pool, tables, limit, tripped, watch },
        })
    }

    /// Bytes a second that all threads together read from memory: the best of several passes over 256 MB.
    pub fn measure_bandwidth(&self) -> f64 {
        const WORDS: usize = 32 << 20;
        let pool = &self.machine.pool;
        let mut data = vec![1u64; WORDS];
        let chunk = WORDS.div_ceil(pool.threads());
        let pass = |data: &mut [u64]| {
            let start = now_ms();
            pool.for_chunks(data, chunk, |_, part| {
                let mut lanes = [0u64; 16];
                for words in part.chunks_exact(16) {
                    for (lane, word) in lanes.iter_mut().zip(words) {
                        *lane = lane.wrapping_add(*word);
                    }
                }
                std::hint::black_box(lanes);
            });
            now_ms() - start
        };
        let best = (0..6).map(|_| pass(&mut data)).fold(f64::INFINITY, f64::min);
        (WORDS * 8) as f64 / best * 1e3
    }

    fn limits(&self) -> Limits {
        Limits { n_vocab: self.machine.plan.n_vocab, capacity: self.capacity, steps: self.ring_steps }
    }

    fn feed_now(&mut self, slot: usize, tokens: &[u32], position: usize) {
        let plan = self.machine.plan.clone();
        self.slots[slot].history.resize(position, 0);
        self.slots[slot].history.extend(tokens);
        (self.fed_slot, self.fed_single) = (slot, tokens.len() == 1);
        let buffers = if self.fed_single { &mut self.single } else { &mut self.chunk };
        buffers.ensure(&plan, tokens.len());
        let places: Vec<_> = (position..).take(tokens.len()).map(|position| Place { slot, position }).collect();
        let machine = &mut self.machine;
        machine.pool.clone().enter(|| machine.run(Part::Body, buffers, Rows { tokens, places: &places }));
    }

    /// Makes row `row` of the last feed the hidden state of the single row, and runs `part` on it.
    fn run_on_row(&mut self, slot: usize, row: usize, part: Part) -> Result<()> {
        let n_rows = if self.fed_single { 1 } else { self.chunk.n_rows };
        if row >= n_rows {
            let found = row.to_string();
            return Err(Error::BadOption { option: "row", found, expected: "a row of the last chunk" });
        }
        let plan = self.machine.plan.clone();
        if !self.fed_single {
            let hidden = self.single.all[plan.hidden.0 as usize].f32_mut();
            let width = hidden.len();
            hidden.copy_from_slice(&self.chunk.get(plan.hidden).f32()[row * width..][..width]);
        }
        let position = self.slots[self.fed_slot].history.len().saturating_sub(n_rows - row);
        let places = [Place { slot, position }];
        let (machine, single) = (&mut self.machine, &mut self.single);
        machine.pool.clone().enter(|| machine.run(part, single, Rows { tokens: &[], places: &places }));
        Ok(())
    }

    fn head_now(&mut self, slot: usize, row: usize) -> Result<()> {
        self.run_on_row(slot, row, Part::Head)?;
        self.slots[slot].keep_logits(self.single.get(self.machine.plan.logits).f32());
        Ok(())
    }

    /// Feeds a token to each of several slots and computes their logits, in one pass over the weights.
    fn step_now(&mut self, tokens: &[u32], places: &[Place]) -> Result<()> {
        if let ([token], [Place { slot, position }]) = (tokens, places) {
            self.feed_now(*slot, &[*token], *position);
            return self.head_now(*slot, 0);
        }
        let plan = self.machine.plan.clone();
        for (Place { slot, position }, token) in places.iter().zip(tokens) {
            self.slots[*slot].history.resize(*position, 0);
            self.slots[*slot].history.push(*token);
        }
        self.batch.ensure(&plan, tokens.len());
        let (machine, batch) = (&mut self.machine, &mut self.batch);
        let rows = Rows { tokens, places };
        machine.pool.clone().enter(|| {
            machine.run(Part::Body, batch, rows);
            machine.run(Part::Head, batch, rows);
        });
        let logits = self.batch.get(plan.logits).f32();
        for (Place { slot, .. }, logits) in places.iter().zip(logits.chunks_exact(plan.n_vocab)) {
            self.slots[*slot].keep_logits(logits);
        }
        Ok(())
    }

    /// What was timed since the last call or [`CpuBackend::clear_times`].
    pub(crate) fn take_ledger(&mut self) -> Ledger {
        self.machine.watch.take()
    }

    /// Forgets what was timed.
    pub(crate) fn clear_times(&mut self) {
        self.machine.watch.take();
    }

    /// What was asked to be timed.
    pub(crate) fn timing(&self) -> Timing {
        self.machine.watch.timing()
    }

    /// Takes what rows that do not go on from their states begin with.
    fn begin_rows(&mut self, rows: &[Row<'_>]) {
        for row in rows {
            let slot = &mut self.slots[row.slot];
            if row.first != First::FromState {
                (slot.end, slot.left) = (None, row.left);
            }
            if let First::Token(id) = row.first {
                slot.last_token = id;
            }
        }
    }

    fn burst_now(&mut self, burst: Burst<'_>) -> Result<Vec<Drawn>> {
        burst.check(self.limits(), &self.machine.tables)?;
        let mut feeds = !burst.only_draws_first();
        let mut positions: Vec<usize> = burst.rows.iter().map(|row| row.position).collect();
        let mut drawn = vec![Drawn::default(); burst.rows.len()];
        self.begin_rows(burst.rows);
        for _ in 0..burst.steps {
            let running: Vec<_> =
                (0..burst.rows.len()).filter(|at| self.slots[burst.rows[*at].slot].end.is_none()).collect();
            if running.is_empty() {
                break;
            }
            if feeds {
                let slot = |at: &usize| burst.rows[*at].slot;
                let tokens: Vec<_> = running.iter().map(|at| self.slots[slot(at)].last_token).collect();
                let places: Vec<_> =
                    running.iter().map(|at| Place { slot: slot(at), position: positions[*at] }).collect();
                self.step_now(&tokens, &places)?;
            }
            for at in running {
                positions[at] += usize::from(feeds);
                self.draw_now(&burst.rows[at], positions[at], &mut drawn[at]);
            }
            feeds = true;
        }
        Ok(drawn)
    }

    /// Draws a slot's next token, which will stand at `position`.
    fn draw_now(&mut self, row: &Row<'_>, position: usize, drawn: &mut Drawn) {
        let start = self.machine.watch.start_step();
        let slot = &mut self.slots[row.slot];
        let before = &slot.history[..position.min(slot.history.len())];
        let id = match self.machine.tripped[row.slot] {
            UNTRIPPED => draw(&slot.logits, row.sampling, position as u32, before, row.mask).ok_or(RowEnd::NoCandidate),
            _ => Err(RowEnd::Guard),
        };
        self.machine.watch.end_step(Part::Sample, 0, start);
        slot.end = match id {
            Err(end) => Some(end),
            Ok(id) => {
                drawn.ids.push(id);
                slot.last_token = id;
                let left = slot.left;
                slot.left = left.saturating_sub(1);
                if row.stop_ids.contains(&id) {
                    Some(RowEnd::StopId)
                } else if left <= 1 {
                    Some(RowEnd::MaxTokens)
                } else {
                    (position >= self.capacity.n_ctx).then_some(RowEnd::ContextFull)
                }
            }
        };
        drawn.end = slot.end;
    }
}

impl Backend for CpuBackend {
    fn info(&self) -> &BackendInfo {
        &self.info
    }

    fn capacity(&self) -> Capacity {
        self.capacity
    }

    fn max_chunk(&self) -> usize {
        MAX_CHUNK
    }

    fn configure(&mut self, execution: Execution) -> Result<()> {
        execution.ring.check()?;
        self.ring_steps = execution.ring.steps;
        self.machine.limit = execution.guard_limit.map_or(u32::MAX, f32::to_bits);
        self.machine.tripped.fill(UNTRIPPED);
        self.machine.watch.set(execution.timing);
        Ok(())
    }

    fn set_pages(&mut self, slot: usize, first: usize, pages: &[u32]) -> Result<()> {
        self.machine.tables.set(slot, first, pages).map(|_| ())
    }

    fn begin(&mut self, slot: usize, tokens: &[u32]) -> Result<()> {
        self.limits().check_sequence(slot, tokens)?;
        self.slots[slot].history = tokens.to_vec();
        self.machine.tripped[slot] = UNTRIPPED;
        Ok(())
    }

    fn copy_page(&mut self, from: u32, to: u32) -> Result<()> {
        check_page(from, self.capacity)?;
        check_page(to, self.capacity)?;
        self.machine.cache.iter_mut().for_each(|layer| layer.copy_page(from as usize, to as usize));
        Ok(())
    }

    async fn read_page(&mut self, page: u32) -> Result<Vec<u8>> {
        check_page(page, self.capacity)?;
        let mut bytes = Vec::new();
        for layer in &self.machine.cache {
            bytes.extend(layer.page_bytes(page as usize));
        }
        Ok(bytes)
    }

    fn write_page(&mut self, page: u32, bytes: &[u8]) -> Result<()> {
        check_page(page, self.capacity)?;
        check_page_bytes(&self.machine.plan, bytes)?;
        let mut rest = bytes;
        for (layer, shape) in self.machine.cache.iter_mut().zip(&self.machine.plan.layers) {
            let (here, after) = rest.split_at(2 * shape.page_bytes());
            layer.write_page(page as usize, here);
            rest = after;
        }
        Ok(())
    }

    fn save_state(&mut self, slot: usize, snapshot: usize) -> Result<()> {
        self.limits().check_slot(slot)?;
        check_snapshot(snapshot, self.capacity)?;
        self.machine.recurrent.iter_mut().for_each(|layer| layer.save(slot, snapshot));
        Ok(())
    }

    fn load_state(&mut self, slot: usize, snapshot: usize) -> Result<()> {
        self.limits().check_slot(slot)?;
        check_snapshot(snapshot, self.capacity)?;
        self.machine.recurrent.iter_mut().for_each(|layer| layer.load(slot, snapshot));
        Ok(())
    }

    async fn read_state(&mut self, snapshot: usize) -> Result<Vec<u8>> {
        check_snapshot(snapshot, self.capacity)?;
        Ok(self.machine.snapshot_bytes(snapshot))
    }

    fn write_state(&mut self, snapshot: usize, bytes: &[u8]) -> Result<()> {
        check_snapshot(snapshot, self.capacity)?;
        check_state_bytes(&self.machine.plan, bytes)?;
        self.machine.write_snapshot(snapshot, bytes);
        Ok(())
    }

    async fn feed(&mut self, slot: usize, tokens: &[u32], position: usize) -> Result<()> {
        check_feed(slot, tokens, position, self.limits(), &self.machine.tables, MAX_CHUNK)?;
        // The row runs again, without limits.
        (self.slots[slot].end, self.slots[slot].left) = (None, usize::MAX);
        let start = self.machine.watch.start_submit(Phase::Prefill);
        self.feed_now(slot, tokens, position);
        self.machine.watch.end_submit(start, tokens.len());
        Ok(())
    }

    async fn head(&mut self, slot: usize, row: usize) -> Result<()> {
        check_fed(slot, self.fed_slot)?;
        let start = self.machine.watch.start_submit(Phase::Prefill);
        self.head_now(slot, row)?;
        self.machine.watch.end_submit(start, 0);
        Ok(())
    }

    async fn forward(&mut self, rows: &[Row<'_>]) -> Result<()> {
        Burst { rows, steps: 1 }.check_forward(self.limits(), &self.machine.tables)?;
        self.begin_rows(rows);
        let running = || rows.iter().filter(|row| self.slots[row.slot].end.is_none());
        let tokens: Vec<_> = running().map(|row| self.slots[row.slot].last_token).collect();
        let places: Vec<_> = running().map(|row| Place { slot: row.slot, position: row.position }).collect();
        if tokens.is_empty() {
            return Ok(());
        }
        let start = self.machine.watch.start_submit(Phase::Decode);
        self.step_now(&tokens, &places)?;
        self.machine.watch.end_submit(start, 0);
        Ok(())
    }

    async fn read_logits(&mut self, slot: usize) -> Result<Vec<f32>> {
        self.limits().check_slot(slot)?;
        Ok(self.slots[slot].logits.clone())
    }

    async fn embedding(&mut self, row: usize) -> Result<Vec<f32>> {
        self.run_on_row(self.fed_slot, row, Part::Embed)?;
        Ok(self.single.get(self.machine.plan.embedding).f32().to_vec())
    }

    async fn burst(&mut self, burst: Burst<'_>) -> Result<Vec<Drawn>> {
        let phase = burst.phase();
        let start = self.machine.watch.start_submit(phase);
        let drawn = self.burst_now(burst)?;
        let n = drawn.iter().map(|drawn| drawn.ids.len()).sum();
        self.machine.watch.end_submit(start, if phase == Phase::Decode { n } else { 0 });
        Ok(drawn)
    }

    async fn take_trip(&mut self, slot: usize) -> Result<Option<Trip>> {
        self.limits().check_slot(slot)?;
        Ok(Trip::from_word(std::mem::replace(&mut self.machine.tripped[slot], UNTRIPPED)))
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }
}
