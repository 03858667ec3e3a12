//! Interprets a plan on the CPU.

mod delta_net;
mod trace;

use std::sync::Arc;

use super::attention::{Visible, attention};
use super::combine_experts::combine_experts;
use super::expert_matmul::expert_matmul;
use super::gated_activation::gated_activation;
use super::gated_add::gated_add;
use super::kv::LayerCache;
use super::matmul::{Activations, matmul};
use super::pool::Pool;
use super::quantise::Q8Rows;
use super::recurrent::LayerStates;
use super::rms_norm::rms_norm;
use super::rope_append::RopeAppend;
use super::route::route;
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
use crate::numerics::guard;
use crate::plan::{BufferId, Op, PAGE, Plan, Shape, WeightId};
use crate::sample::draw;

/// Most tokens of one `feed`.
const MAX_CHUNK: usize = 128;

/// A buffer of the plan, vector by vector; `width` is a vector's.
#[derive(Debug)]
enum Buffer {
    F32 { values: Vec<f32> },
    Q8 { width: usize, rows: Q8Rows },
}

impl Buffer {
    fn new(shape: Shape, n_rows: usize) -> Self {
        match shape {
            Shape::F32 { vectors, width } => Buffer::F32 { values: vec![0.0; n_rows * vectors * width] },
            Shape::Q8 { vectors, width } => Buffer::Q8 { width, rows: Q8Rows::zeroed(width, n_rows * vectors) },
        }
    }

    /// Values of all rows.
    fn len(&self) -> usize {
        match self {
            Buffer::F32 { values } => values.len(),
            Buffer::Q8 { width, rows } => rows.rows() * width,
        }
    }

    fn activations(&self) -> Activations<'_> {
        match self {
            Buffer::Q8 { rows, .. } => Activations::Q8(rows),
            Buffer::F32 { values } => Activations::F32(values),
        }
    }

    fn f32(&self) -> &[f32] {
        match self {
            Buffer::F32 { values } => values,
            Buffer::Q8 { .. } => unreachable!("the plan reads f32 here"),
        }
    }

    fn f32_mut(&mut self) -> &mut [f32] {
        self.f32_vec()
    }

    fn f32_vec(&mut self) -> &mut Vec<f32> {
        match self {
            Buffer::F32 { values } => values,
            Buffer::Q8 { .. } => unreachable!("the plan writes f32 here"),
        }
    }
}

/// The plan's buffers for a number of rows.
#[derive(Debug)]
struct Buffers {
    n_rows: usize,
    all: Vec<Buffer>,
    /// One f32 value for every value of the widest result: what is computed before it is quantised.
    scratch: Vec<f32>,
}

impl Buffers {
    fn new(plan: &Plan, n_rows: usize) -> Self {
        let all: Vec<_> = plan.buffers.iter().map(|shape| Buffer::new(*shape, n_rows)).collect();
        Buffers { n_rows, all, scratch: Vec::new() }
    }

    /// Makes them hold `n_rows` rows.
    fn ensure(&mut self, plan: &Plan, n_rows: usize) {
        if self.n_rows != n_rows {
            *self = Buffers::new(plan, n_rows);
        }
    }

    fn get(&self, id: BufferId) -> &Buffer {
        &self.all[id.0 as usize]
    }

    /// Computes `out` from the other buffers: `fill` writes f32 rows, which are added to, copied to or quantised into `out`.
    fn produce(&mut self, out: BufferId, accumulate: bool, fill: impl FnOnce(&Self, &mut [f32])) {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(self.get(out).len(), 0.0);
        fill(self, &mut scratch);
        match &mut self.all[out.0 as usize] {
            Buffer::Q8 { width, rows } => {
                for (r, row) in scratch.chunks_exact(*width).enumerate() {
                    rows.quantise_row(r, row);
                }
            }
            Buffer::F32 { values } if accumulate => {
                for (value, added) in values.iter_mut().zip(&scratch) {
                    *value += guard(*added);
                }
            }
            Buffer::F32 { values } => values.copy_from_slice(&scratch),
        }
        self.scratch = scratch;
    }
}

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

/// The rows of a run: a chunk of one sequence, or a token of each of several.
#[derive(Clone, Copy)]
struct Rows<'a> {
    tokens: &'a [u32],
    /// Slot and position of each.
    places: &'a [Place],
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
struct Place {
    slot: usize,
    position: usize,
}

/// What interpreting an operation needs besides the buffers.
struct Machine {
    plan: Arc<Plan>,
    weights: CpuWeights,
    /// `[n_ctx, pairs, 2]` by variant.
    ropes: Vec<Vec<f32>>,
    cache: Vec<LayerCache>,
    /// By recurrent layer.
    recurrent: Vec<LayerStates>,
    pool: Arc<Pool>,
    tables: BlockTables,
    /// Bits of the magnitude from which the guard trips, and its word by slot.
    limit: u32,
    tripped: Vec<u32>,
    watch: Stopwatch,
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
        let logits = self.single.get(self.machine.plan.logits).f32();
        self.slots[slot].logits.clear();
        self.slots[slot].logits.extend_from_slice(logits);
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
            self.slots[*slot].logits.clear();
            self.slots[*slot].logits.extend_from_slice(logits);
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

impl Machine {
    fn run(&mut self, part: Part, buffers: &mut Buffers, rows: Rows<'_>) {
        let plan = self.plan.clone();
        for (at, op) in part.ops(&plan).iter().enumerate() {
            let start = self.watch.start_step();
            self.step(op, buffers, rows);
            self.watch.end_step(part, at, start);
        }
    }

    fn step(&mut self, op: &Op, buffers: &mut Buffers, rows: Rows<'_>) {
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
