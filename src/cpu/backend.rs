//! Interprets a plan on the CPU, one sequence.

mod trace;

use std::sync::Arc;

use super::attention::attention;
use super::gated_activation::gated_activation;
use super::kv::LayerCache;
use super::matmul::{Activations, matmul};
use super::pool::Pool;
use super::quantise::Q8Rows;
use super::rms_norm::rms_norm;
use super::rope_append::RopeAppend;
use super::timing::{Part, Stopwatch};
pub use super::weights::CpuWeights;
use crate::engine::backend::{
    Backend, BackendInfo, Burst, Counters, Drawn, Execution, First, Limits, RingSize, RowEnd, Timing, Trip, UNTRIPPED,
    check_feed,
};
use crate::engine::clock::now_ms;
use crate::engine::ledger::{Ledger, Phase};
use crate::error::{Error, Result};
use crate::numerics::guard;
use crate::plan::{BufferId, Op, Plan, Shape, WeightId};
use crate::sample::draw;

/// Most tokens of one `feed`.
const MAX_CHUNK: usize = 128;

/// A buffer of the plan.
#[derive(Debug)]
enum Buffer {
    F32 { width: usize, values: Vec<f32> },
    Q8 { width: usize, rows: Q8Rows },
}

impl Buffer {
    fn new(shape: Shape, n_rows: usize) -> Self {
        match shape {
            Shape::F32 { width } => Buffer::F32 { width, values: vec![0.0; width * n_rows] },
            Shape::Q8 { width } => Buffer::Q8 { width, rows: Q8Rows::zeroed(width, n_rows) },
        }
    }

    fn f32(&self) -> &[f32] {
        match self {
            Buffer::F32 { values, .. } => values,
            Buffer::Q8 { .. } => unreachable!("the plan reads f32 here"),
        }
    }

    fn f32_mut(&mut self) -> &mut [f32] {
        match self {
            Buffer::F32 { values, .. } => values,
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

    fn get(&self, id: BufferId) -> &Buffer {
        &self.all[id.0 as usize]
    }

    /// Computes `out` from the other buffers: `fill` writes f32 rows, which are added to, copied to or quantised into `out`.
    fn produce(&mut self, out: BufferId, accumulate: bool, fill: impl FnOnce(&Self, &mut [f32])) {
        let width = match self.get(out) {
            Buffer::F32 { width, .. } | Buffer::Q8 { width, .. } => *width,
        };
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(width * self.n_rows, 0.0);
        fill(self, &mut scratch);
        match &mut self.all[out.0 as usize] {
            Buffer::Q8 { rows, .. } => {
                for (r, row) in scratch.chunks_exact(width).enumerate() {
                    rows.quantise_row(r, row);
                }
            }
            Buffer::F32 { values, .. } if accumulate => {
                for (value, added) in values.iter_mut().zip(&scratch) {
                    *value += guard(*added);
                }
            }
            Buffer::F32 { values, .. } => values.copy_from_slice(&scratch),
        }
        self.scratch = scratch;
    }
}

/// A model on the CPU.
pub struct CpuBackend {
    info: BackendInfo,
    machine: Machine,
    /// Buffers of one row: decoding and the head.
    single: Buffers,
    /// Buffers of the last chunk's number of rows.
    chunk: Buffers,
    /// Whether the last `feed` used `single`.
    fed_single: bool,
    n_ctx: usize,
    /// Steps of a burst, as on a device.
    ring_steps: usize,
    /// The decoding row: the token it drew last, why it ended, and what it may still draw.
    last_token: u32,
    end: Option<RowEnd>,
    left: usize,
    /// Tokens by position.
    history: Vec<u32>,
}

/// What interpreting an operation needs besides the buffers.
struct Machine {
    plan: Arc<Plan>,
    weights: CpuWeights,
    /// `[n_ctx, pairs, 2]` by variant.
    ropes: Vec<Vec<f32>>,
    cache: Vec<LayerCache>,
    pool: Arc<Pool>,
    /// Bits of the magnitude from which the guard trips, and its word.
    limit: u32,
    tripped: u32,
    watch: Stopwatch,
}

impl CpuBackend {
    /// A backend with an empty cache for `n_ctx` positions, on every core.
    ///
    /// # Errors
    /// `BadTensor` where a weight of the plan was not loaded.
    pub fn new(plan: Arc<Plan>, weights: CpuWeights, n_ctx: usize) -> Result<Self> {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        Self::with_threads(plan, weights, n_ctx, threads)
    }

    /// A backend on a fixed number of threads.
    ///
    /// # Errors
    /// Those of [`CpuBackend::new`].
    pub fn with_threads(plan: Arc<Plan>, weights: CpuWeights, n_ctx: usize, threads: usize) -> Result<Self> {
        plan.check_weights(|id| weights.has(id))?;
        let ropes = plan.ropes.iter().map(|table| table.values(n_ctx)).collect();
        let cache = plan.layers.iter().map(|shape| LayerCache::new(*shape)).collect();
        let (pool, watch) = (Arc::new(Pool::new(threads)), Stopwatch::new(&plan));
        let adapter = format!("{} threads, {}", pool.threads(), super::dot::instruction_set());
        let limit = f32::INFINITY.to_bits();
        Ok(CpuBackend {
            info: BackendInfo { backend: "cpu", adapter },
            single: Buffers::new(&plan, 1),
            chunk: Buffers::new(&plan, 1),
            fed_single: true,
            n_ctx,
            ring_steps: RingSize::default().steps,
            last_token: 0,
            end: None,
            left: 0,
            history: Vec::new(),
            machine: Machine { plan, weights, ropes, cache, pool, limit, tripped: UNTRIPPED, watch },
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
        Limits { n_vocab: self.machine.plan.n_vocab, n_ctx: self.n_ctx, steps: self.ring_steps }
    }

    fn feed_now(&mut self, tokens: &[u32], position: usize) -> Result<()> {
        let plan = self.machine.plan.clone();
        check_feed(tokens, position, self.limits(), MAX_CHUNK)?;
        self.history.resize(position, 0);
        self.history.extend(tokens);
        self.fed_single = tokens.len() == 1;
        let buffers = if self.fed_single { &mut self.single } else { &mut self.chunk };
        if buffers.n_rows != tokens.len() {
            *buffers = Buffers::new(&plan, tokens.len());
        }
        let machine = &mut self.machine;
        machine.pool.clone().enter(|| machine.run(Part::Body, buffers, tokens, position));
        Ok(())
    }

    /// Makes row `row` of the last feed the hidden state of the single row, and runs `part` on it.
    fn run_on_row(&mut self, row: usize, part: Part) -> Result<()> {
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
        let position = self.history.len().saturating_sub(n_rows - row);
        let (machine, single) = (&mut self.machine, &mut self.single);
        machine.pool.clone().enter(|| machine.run(part, single, &[], position));
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

    fn logits(&self) -> &[f32] {
        self.single.get(self.machine.plan.logits).f32()
    }

    fn burst_now(&mut self, burst: Burst<'_>) -> Result<Drawn> {
        burst.check(self.limits())?;
        burst.sampling.check(self.machine.plan.n_vocab)?;
        if burst.first != First::FromState {
            (self.end, self.left) = (None, burst.left);
        }
        if self.end.is_some() {
            return Ok(Drawn::default());
        }
        let mut drawn = Drawn::default();
        let mut position = burst.position;
        let mut next = match burst.first {
            First::FromLogits => None,
            First::FromState => Some(self.last_token),
            First::Token(id) => Some(id),
        };
        for _ in 0..burst.steps {
            if self.end.is_some() {
                break;
            }
            let feeds = usize::from(next.is_some());
            if let Some(id) = next {
                self.feed_now(&[id], position)?;
                self.run_on_row(0, Part::Head)?;
            }
            if self.machine.tripped != UNTRIPPED {
                self.end = Some(RowEnd::Guard);
                break;
            }
            position += feeds;
            let before = &self.history[..position.min(self.history.len())];
            let start = self.machine.watch.start_step();
            let id = draw(self.logits(), burst.sampling, position as u32, before);
            self.machine.watch.end_step(Part::Sample, 0, start);
            let Some(id) = id else {
                self.end = Some(RowEnd::NoCandidate);
                break;
            };
            drawn.ids.push(id);
            next = Some(id);
            self.last_token = id;
            self.end = if burst.stop_ids.contains(&id) {
                Some(RowEnd::StopId)
            } else if self.left <= 1 {
                Some(RowEnd::MaxTokens)
            } else {
                (position >= self.n_ctx).then_some(RowEnd::ContextFull)
            };
            self.left = self.left.saturating_sub(1);
        }
        drawn.end = self.end;
        Ok(drawn)
    }
}

impl Machine {
    fn run(&mut self, part: Part, buffers: &mut Buffers, tokens: &[u32], position: usize) {
        let plan = self.plan.clone();
        for (at, op) in part.ops(&plan).iter().enumerate() {
            let start = self.watch.start_step();
            self.step(op, buffers, tokens, position);
            self.watch.end_step(part, at, start);
        }
    }

    fn step(&mut self, op: &Op, buffers: &mut Buffers, tokens: &[u32], position: usize) {
        match *op {
            Op::Embed { weight, out, scale } => self.embed(buffers, weight, out, scale, tokens),
            Op::RmsNorm { x, weight, out, eps, accumulate, source } => {
                self.check_finite(buffers.get(x).f32(), buffers.n_rows, source, position);
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
            Op::RopeAppend { .. } => self.rope_append(op, buffers, position),
            Op::Attention { qkv, out, heads, layer } => {
                let (cache, pool) = (&self.cache[layer], &self.pool);
                let (row_width, group) =
                    ((heads.n_heads + 2 * heads.n_kv_heads) * heads.head_dim, heads.n_heads / heads.n_kv_heads);
                buffers.produce(out, false, |buffers, out| {
                    let qkv = buffers.get(qkv).f32();
                    pool.for_chunks(out, heads.head_dim, |i, out| {
                        let (row, head) = (i / heads.n_heads, i % heads.n_heads);
                        let query = &qkv[row * row_width + head * heads.head_dim..][..heads.head_dim];
                        attention(query, cache, heads, head / group, position + row, out);
                    });
                });
            }
            Op::GatedActivation { gate_up, out, activation } => {
                let pool = &self.pool;
                buffers.produce(out, false, |buffers, out| {
                    let gate_up = buffers.get(gate_up).f32();
                    let width = gate_up.len() / buffers.n_rows;
                    pool.for_chunks(out, width / 2, |r, out| {
                        gated_activation(&gate_up[r * width..][..width], activation, out);
                    });
                });
            }
            // The CPU draws on the host: `burst_now`.
            Op::Sample { .. } => {}
        }
    }

    /// The guard: notes the first row of `x` with a magnitude that reaches the limit.
    fn check_finite(&mut self, x: &[f32], n_rows: usize, layer: Option<usize>, position: usize) {
        for (r, row) in x.chunks_exact(x.len() / n_rows).enumerate() {
            let largest = row.iter().map(|x| x.to_bits() & 0x7fff_ffff).max().unwrap_or(0);
            if largest >= self.limit {
                let not_finite = largest >= f32::INFINITY.to_bits();
                let trip = Trip { layer, position: position + r, not_finite };
                self.tripped = self.tripped.min(trip.word());
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
        let mut target =
            std::mem::replace(&mut buffers.all[out.0 as usize], Buffer::F32 { width: 0, values: Vec::new() });
        let stride = target.f32().len() / buffers.n_rows;
        let x = match buffers.get(x) {
            Buffer::Q8 { rows, .. } => Activations::Q8(rows),
            Buffer::F32 { values, .. } => Activations::F32(values),
        };
        matmul(self.weights.matrix(weight), x, accumulate, target.f32_mut(), stride, out_offset, &self.pool);
        buffers.all[out.0 as usize] = target;
    }

    fn rope_append(&mut self, op: &Op, buffers: &mut Buffers, position: usize) {
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
        for (r, row) in rows.chunks_exact_mut(width).enumerate() {
            rope_append.row(row, position + r, &mut self.cache[layer]);
        }
    }
}

impl Backend for CpuBackend {
    fn info(&self) -> &BackendInfo {
        &self.info
    }

    fn max_chunk(&self) -> usize {
        MAX_CHUNK
    }

    async fn feed(&mut self, tokens: &[u32], position: usize) -> Result<()> {
        // The row runs again, without limits.
        (self.end, self.left) = (None, usize::MAX);
        let start = self.machine.watch.start_submit(Phase::Prefill);
        self.feed_now(tokens, position)?;
        self.machine.watch.end_submit(start, tokens.len());
        Ok(())
    }

    fn configure(&mut self, execution: Execution) -> Result<()> {
        execution.ring.check()?;
        self.ring_steps = execution.ring.steps;
        self.machine.limit = execution.guard_limit.map_or(u32::MAX, f32::to_bits);
        self.machine.tripped = UNTRIPPED;
        self.machine.watch.set(execution.timing);
        Ok(())
    }

    async fn head(&mut self, row: usize) -> Result<()> {
        let start = self.machine.watch.start_submit(Phase::Prefill);
        self.run_on_row(row, Part::Head)?;
        self.machine.watch.end_submit(start, 0);
        Ok(())
    }

    async fn read_logits(&mut self) -> Result<Vec<f32>> {
        Ok(self.logits().to_vec())
    }

    async fn embedding(&mut self, row: usize) -> Result<Vec<f32>> {
        self.run_on_row(row, Part::Embed)?;
        Ok(self.single.get(self.machine.plan.embedding).f32().to_vec())
    }

    async fn burst(&mut self, burst: Burst<'_>) -> Result<Drawn> {
        let phase = burst.phase();
        let start = self.machine.watch.start_submit(phase);
        let drawn = self.burst_now(burst)?;
        self.machine.watch.end_submit(start, if phase == Phase::Decode { drawn.ids.len() } else { 0 });
        Ok(drawn)
    }

    async fn take_trip(&mut self) -> Result<Option<Trip>> {
        Ok(Trip::from_word(std::mem::replace(&mut self.machine.tripped, UNTRIPPED)))
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }
}
