//! Two backends run side by side, operation after operation, and what they wrote compared.

use std::ops::Range;
use std::sync::Arc;

use super::compare::{Form, Mismatch, compare};
use super::report::{DebugReport, Difference, LayerSummary, Phase, PhaseKind, TOGETHER, Value};
use crate::cpu::backend::CpuBackend;
use crate::engine::SLOT;
use crate::engine::backend::{Backend, Burst, Execution, First, Row, only};
use crate::error::Result;
use crate::gpu::GpuBackend;
use crate::plan::{BufferId, Heads, KvType, List, Op, PAGE, Plan, Shape};
use crate::sample::{Sampling, draw};

/// The snapshot of the recurrent states before a run, and the one they are compared in.
const BEFORE: usize = 0;
const AFTER: usize = 1;

/// A model on the cpu and on a device, with the same tokens in both caches.
pub(super) struct Pair {
    plan: Arc<Plan>,
    cpu: CpuBackend,
    gpu: GpuBackend,
    /// Tokens by position.
    fed: Vec<u32>,
    /// The run under way.
    kind: PhaseKind,
    position: usize,
    rows: usize,
}

/// Which operation wrote something.
#[derive(Clone, Copy)]
struct Spot {
    op: &'static str,
    list: List,
    index: usize,
    layer: Option<usize>,
}

/// What is done with some tokens.
#[derive(Clone, Copy)]
pub(super) struct Run<'a> {
    pub(super) kind: PhaseKind,
    pub(super) tokens: &'a [u32],
    /// Whether operations are compared one by one even where the whole is equal.
    pub(super) traced: bool,
    /// Whether the last row gets logits.
    pub(super) with_head: bool,
}

impl Pair {
    pub(super) fn new(plan: Arc<Plan>, mut cpu: CpuBackend, mut gpu: GpuBackend) -> Result<Self> {
        // Hidden states that are not finite are to be seen, not refused.
        let execution = Execution { guard_limit: None, ..Execution::default() };
        cpu.configure(execution)?;
        gpu.configure(execution)?;
        Ok(Pair { plan, cpu, gpu, fed: Vec::new(), kind: PhaseKind::Prefill, position: 0, rows: 0 })
    }

    /// Tokens of a chunk at most.
    pub(super) fn max_chunk(&self) -> usize {
        self.cpu.max_chunk().min(self.gpu.max_chunk())
    }

    /// Tokens fed so far.
    pub(super) fn fed(&self) -> &[u32] {
        &self.fed
    }

    /// The likeliest token after the last row; `None` where no logit is a number.
    pub(super) fn likeliest(&self) -> Option<u32> {
        let logits = self.cpu.trace_words(List::Head, self.plan.logits);
        draw(bytemuck::cast_slice(&logits), &Sampling::GREEDY, self.fed.len() as u32, &self.fed, None)
    }

    /// Runs tokens on both: as a whole, then operation by operation where that is asked for or the whole differs. Returns whether
    /// all was equal; else the report has the difference.
    pub(super) async fn run(&mut self, run: Run<'_>, report: &mut DebugReport) -> Result<bool> {
        (self.kind, self.position, self.rows) = (run.kind, self.fed.len(), run.tokens.len());
        // Single operations start from the states that the whole started from.
        self.cpu.save_state(SLOT, BEFORE)?;
        self.gpu.save_state(SLOT, BEFORE)?;
        self.cpu.feed(SLOT, run.tokens, self.position).await?;
        self.gpu.feed(SLOT, run.tokens, self.position).await?;
        self.fed.extend(run.tokens);
        let mut difference = self.whole_body().await?;
        if run.traced || difference.is_some() {
            let layers = Vec::new();
            report.phases.push(Phase { kind: run.kind, position: self.position, rows: self.rows, layers });
            self.cpu.load_state(SLOT, BEFORE)?;
            self.gpu.load_state(SLOT, BEFORE)?;
            difference = self.trace(List::Body, report).await?.or(difference);
        }
        if difference.is_none() && run.with_head {
            difference = self.head(run.traced, report).await?;
        }
        if !run.traced && difference.is_none() {
            report.untraced += self.rows;
        }
        report.difference = difference;
        Ok(report.is_equal())
    }

    async fn head(&mut self, traced: bool, report: &mut DebugReport) -> Result<Option<Difference>> {
        self.cpu.head(SLOT, self.rows - 1).await?;
        self.gpu.head(SLOT, self.rows - 1).await?;
        let whole = self.compare_buffer(List::Head, self.plan.logits, "logits").await?;
        let whole = whole.map(|m| self.difference(Spot::together(List::Head, None), m));
        if !traced && whole.is_none() {
            return Ok(None);
        }
        match self.trace(List::Head, report).await?.or(whole) {
            None => self.sampler(report).await,
            difference => Ok(difference),
        }
    }

    /// The caches, the recurrent states and the hidden states after a run as a whole.
    async fn whole_body(&mut self) -> Result<Option<Difference>> {
        for cache in 0..self.plan.layers.len() {
            if let Some(mismatch) = self.compare_cache(cache).await? {
                let layer = self.layer_of(|op| matches!(op, Op::RopeAppend { layer, .. } if *layer == cache));
                return Ok(Some(self.difference(Spot::together(List::Body, layer), mismatch)));
            }
        }
        if let Some((at, mismatch)) = self.compare_states().await? {
            let layer = self.layer_of(|op| matches!(op, Op::DeltaRule { state, .. } if *state == at));
            return Ok(Some(self.difference(Spot::together(List::Body, layer), mismatch)));
        }
        let mismatch = self.compare_buffer(List::Body, self.plan.hidden, "hidden states").await?;
        let layer = self.plan.n_layers().checked_sub(1);
        Ok(mismatch.map(|m| self.difference(Spot::together(List::Body, layer), m)))
    }

    /// The layer of the body's first operation of a kind.
    fn layer_of(&self, kind: impl Fn(&Op) -> bool) -> Option<usize> {
        self.plan.body.iter().position(kind).and_then(|at| self.plan.layer_of(at))
    }

    /// The first recurrent state that differs, by its index in the plan.
    async fn compare_states(&mut self) -> Result<Option<(usize, Mismatch)>> {
        if self.plan.recurrent.is_empty() {
            return Ok(None);
        }
        self.cpu.save_state(SLOT, AFTER)?;
        self.gpu.save_state(SLOT, AFTER)?;
        let (device, cpu) = (self.gpu.read_state(AFTER).await?, self.cpu.read_state(AFTER).await?);
        let (device, cpu): (Vec<u32>, Vec<u32>) =
            (bytemuck::pod_collect_to_vec(&device), bytemuck::pod_collect_to_vec(&cpu));
        let mut first = 0;
        for (at, heads) in self.plan.recurrent.iter().enumerate() {
            let width = heads.states_len() + heads.ring_len();
            let words = first..first + width;
            let form = Form::F32 { what: "recurrent state", width, columns: 0..width };
            if let Some(mismatch) = compare(&form, &device[words.clone()], &cpu[words]) {
                return Ok(Some((at, mismatch)));
            }
            first += width;
        }
        Ok(None)
    }

    /// Runs a list operation by operation, up to the first difference.
    async fn trace(&mut self, list: List, report: &mut DebugReport) -> Result<Option<Difference>> {
        let plan = self.plan.clone();
        for (at, op) in plan.list(list).iter().enumerate() {
            self.cpu.trace_op(list, at);
            self.gpu.trace_op(list, at)?;
            if let Some((op, mismatch)) = self.compare_op(list, op).await? {
                let layer = if list == List::Body { plan.layer_of(at) } else { None };
                return Ok(Some(self.difference(Spot { op, list, index: at, layer }, mismatch)));
            }
            report.equal_operations += 1;
            let ends_layer = plan.layer_starts.contains(&(at + 1)) || at + 1 == plan.body.len();
            if let (List::Body, true, Some(out), Some(phase)) = (list, ends_layer, op.out(), report.phases.last_mut()) {
                let width = width_of(&plan, out);
                phase.layers.push(LayerSummary::of(plan.layer_of(at), &self.cpu.trace_words(list, out), width));
            }
        }
        Ok(None)
    }

    /// What an operation wrote; where that differs, the kernel at fault.
    async fn compare_op(&self, list: List, op: &Op) -> Result<Option<(&'static str, Mismatch)>> {
        let Some(out) = op.out() else { return Ok(None) };
        let form = match (op, self.plan.shape(out)) {
            (_, Shape::Q8 { width, .. }) => Form::Q8 { width },
            (_, Shape::F32 { width, .. }) => {
                let what = if matches!(op, Op::RopeAppend { .. }) { "queries" } else { "values" };
                Form::F32 { what, width, columns: self.cpu.trace_columns(op, width) }
            }
        };
        let device = self.gpu.trace_words(list, out).await?;
        let mismatch = compare(&form, &device, &self.cpu.trace_words(list, out));
        // Vectors were compared: those of a row count as its columns.
        let shape = self.plan.shape(out);
        let mismatch = mismatch.map(|m| Mismatch {
            row: m.row / shape.vectors(),
            column: m.row % shape.vectors() * shape.width() + m.column,
            ..m
        });
        match (op, mismatch) {
            (Op::RopeAppend { layer, .. }, None) => {
                Ok(self.compare_cache(*layer).await?.map(|mismatch| (op.label(), mismatch)))
            }
            (Op::Attention { qkv, heads, layer, .. }, Some(mismatch)) => {
                let partial = self.compare_partials(*qkv, *heads, *layer).await?;
                Ok(Some(partial.map_or(("attention_merge", mismatch), |partial| (op.label(), partial))))
            }
            (_, mismatch) => Ok(mismatch.map(|mismatch| (op.label(), mismatch))),
        }
    }

    async fn compare_buffer(&self, list: List, id: BufferId, what: &'static str) -> Result<Option<Mismatch>> {
        let width = width_of(&self.plan, id);
        let device = self.gpu.trace_words(list, id).await?;
        let form = Form::F32 { what, width, columns: 0..width };
        Ok(compare(&form, &device, &self.cpu.trace_words(list, id)))
    }

    fn positions(&self) -> Range<usize> {
        self.position..self.position + self.rows
    }

    /// The keys and values of the run's tokens.
    async fn compare_cache(&self, layer: usize) -> Result<Option<Mismatch>> {
        let shape = self.plan.layers[layer];
        // By keys and values, then by backend.
        let mut words: [[Vec<u32>; 2]; 2] = Default::default();
        let Range { start, end } = self.positions();
        for page in start / PAGE..end.div_ceil(PAGE) {
            let pages = [self.gpu.trace_page(layer, page).await?, self.cpu.trace_page(layer, page)];
            for slot in start.max(page * PAGE)..end.min((page + 1) * PAGE) {
                for (which, bytes) in pages.iter().enumerate() {
                    let sides = bytes.chunks_exact(shape.page_bytes());
                    words
                        .iter_mut()
                        .zip(sides)
                        .for_each(|(all, side)| all[which].extend(shape.words(side, slot % PAGE)));
                }
            }
        }
        let width = shape.n_kv_heads * shape.head_dim;
        let whats = [["cached keys", "scales of cached keys"], ["cached values", "scales of cached values"]];
        let form = |what: [&'static str; 2]| match shape.kv {
            KvType::F16 => Form::F16 { what: what[0], width },
            KvType::Q8_0 => Form::Q8Cache { what, width },
        };
        Ok(whats.into_iter().zip(&words).find_map(|(what, [device, cpu])| compare(&form(what), device, cpu)))
    }

    /// What attention left for its merge.
    async fn compare_partials(&self, qkv: BufferId, heads: Heads, layer: usize) -> Result<Option<Mismatch>> {
        let device = self.gpu.trace_partials(heads).await?;
        let cpu = self.cpu.trace_partials(qkv, heads, layer, device.chunks_per_unit);
        let width = heads.n_heads * (heads.head_dim + 2);
        let form = Form::F32 { what: "partial results", width, columns: 0..width };
        let mismatch = compare(&form, &device.words, &cpu);
        Ok(mismatch.map(|m| Mismatch { row: device.rows.get(m.row).copied().unwrap_or(0), ..m }))
    }

    /// Draws from the device's own logits, with each chain of the sampler's kernels.
    async fn sampler(&mut self, report: &mut DebugReport) -> Result<Option<Difference>> {
        let words = self.gpu.trace_words(List::Head, self.plan.logits).await?;
        let logits: &[f32] = bytemuck::cast_slice(&words);
        let position = self.fed.len();
        for chain in chains().iter().filter(|chain| chain.sampling.check(self.plan.n_vocab).is_ok()) {
            let (first, sampling) = (First::FromLogits, &chain.sampling);
            let row = Row::new(SLOT, first, position, sampling);
            let device = only(self.gpu.burst(Burst { rows: &[row], steps: 1 }).await?).ids.first().copied();
            let cpu = draw(logits, sampling, position as u32, &self.fed, None);
            if device == cpu {
                report.equal_operations += 1;
                continue;
            }
            let op = if self.best_candidate().await? == cpu { "sample_finish" } else { chain.stem };
            let mismatch = Mismatch {
                what: chain.what,
                row: 0,
                column: 0,
                device: id_value(device),
                cpu: id_value(cpu),
                differing: 1,
                values: 1,
                largest: 0.0,
            };
            return Ok(Some(self.difference(Spot { op, list: List::Sample, index: 0, layer: None }, mismatch)));
        }
        Ok(None)
    }

    /// The id that the last draw's candidates lead to.
    async fn best_candidate(&self) -> Result<Option<u32>> {
        let candidates = self.gpu.trace_candidates().await?;
        let best = candidates.into_iter().filter(|(key, _)| *key != 0).max_by_key(|(key, id)| (*key, !*id));
        Ok(best.map(|(_, id)| id))
    }

    fn difference(&self, spot: Spot, mismatch: Mismatch) -> Difference {
        // Head and sampler work on the last row alone.
        let row = if spot.list == List::Body { mismatch.row } else { self.rows - 1 };
        Difference {
            phase: self.kind,
            rows: self.rows,
            op: spot.op,
            list: spot.list,
            index: spot.index,
            layer: spot.layer,
            what: mismatch.what.into(),
            row,
            position: self.position + row,
            column: mismatch.column,
            device: mismatch.device,
            cpu: mismatch.cpu,
            differing: mismatch.differing,
            values: mismatch.values,
            largest: mismatch.largest,
        }
    }
}

impl Spot {
    fn together(list: List, layer: Option<usize>) -> Self {
        Spot { op: TOGETHER, list, index: 0, layer }
    }
}

/// Values a row of a buffer.
fn width_of(plan: &Plan, id: BufferId) -> usize {
    plan.shape(id).width()
}

/// A draw by one chain of the sampler's kernels.
struct Chain {
    /// The kernel at fault where the draws before it are right.
    stem: &'static str,
    what: &'static str,
    sampling: Sampling,
}

/// Seeds of the random draws: one may give the right token by chance.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=4;

fn chains() -> Vec<Chain> {
    let mut chains = vec![Chain { stem: "sample", what: "token id, greedy", sampling: Sampling::GREEDY }];
    let drawn = || SEEDS.map(|seed| Sampling::new(0.8, seed));
    chains.extend(drawn().map(|sampling| Chain { stem: "sample", what: "token id, temperature 0.8", sampling }));
    chains.extend(drawn().map(|drawn| {
        let sampling = Sampling { repeat_penalty: 1.1, frequency_penalty: 0.1, presence_penalty: 0.1, ..drawn };
        Chain { stem: "sample_adjust", what: "token id, with penalties", sampling }
    }));
    chains.extend(drawn().map(|drawn| {
        let sampling = Sampling { top_k: 40, top_p: 0.9, min_p: 0.02, typical_p: 0.95, ..drawn };
        Chain { stem: "sample_filter or sample_kept", what: "token id, with filters", sampling }
    }));
    chains
}

fn id_value(id: Option<u32>) -> Value {
    id.map_or(Value::new(f64::NAN, u32::MAX), |id| Value::new(f64::from(id), id))
}
