//! Timestamps around what a submit does, resolved in the same submit and read with its results.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use super::buffers::{Allocator, STAGING};
use super::device::Gpu;
use super::readback::Reading;
use super::tally::Tally;
use crate::engine::backend::{Readback, Timing};
use crate::engine::ledger::{Ledger, Phase, Sum};
use crate::error::Result;
use crate::plan::Tag;

/// Timestamps a query set has: two for a submit of one pass, the most there may be for many steps.
const QUERIES_OF_A_PASS: u32 = 2;
const MOST_QUERIES: u32 = wgpu::QUERY_SET_MAX_QUERIES;
/// Timed submits whose times nobody has waited for yet.
const MAX_PENDING: usize = 4;

/// What is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// Every pass, from its begin to its end.
    Passes,
    /// Every dispatch, from the one before it in the same pass.
    Dispatches,
    /// Every dispatch, in a pass of its own.
    PassADispatch,
}

/// Query sets and buffers of one submit, used again when it was read.
#[derive(Debug, Default)]
struct Timer {
    sets: Vec<wgpu::QuerySet>,
    buffers: Option<Buffers>,
}

#[derive(Debug)]
struct Buffers {
    resolved: wgpu::Buffer,
    staging: wgpu::Buffer,
    bytes: u64,
}

type Pool = Arc<Mutex<Vec<Timer>>>;

/// A timer that goes back to its pool.
struct Lease {
    timer: Timer,
    pool: Pool,
}

impl Lease {
    fn take(pool: &Pool) -> Self {
        Lease { timer: lock(pool).pop().unwrap_or_default(), pool: pool.clone() }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        lock(&self.pool).push(std::mem::take(&mut self.timer));
    }
}

/// Where times are gathered.
#[derive(Clone, Default)]
pub(crate) struct SharedLedger(Arc<Mutex<Ledger>>);

impl SharedLedger {
    pub(crate) fn add_tokens(&self, phase: Phase, n: usize) {
        lock(&self.0).add_tokens(phase, n);
    }

    pub(crate) fn busy_ms(&self, phase: Phase) -> Option<f64> {
        lock(&self.0).busy_ms(phase)
    }
}

/// Times the submits of one backend.
pub(crate) struct Timers {
    gpu: Gpu,
    timing: Timing,
    /// What is timed; nothing where the device has no timestamps.
    how: Option<How>,
    queries_a_set: u32,
    pool: Pool,
    ledger: SharedLedger,
    /// Submits whose results nobody reads.
    pending: VecDeque<Times>,
}

impl Timers {
    /// Times nothing.
    pub(crate) fn new(gpu: &Gpu) -> Self {
        Timers {
            gpu: gpu.clone(),
            timing: Timing::Off,
            how: None,
            queries_a_set: MOST_QUERIES,
            pool: Pool::default(),
            ledger: SharedLedger::default(),
            pending: VecDeque::new(),
        }
    }

    /// What is timed from now on; `split` where every dispatch is a submit of its own.
    pub(crate) fn set(&mut self, timing: Timing, split: bool) {
        let features = self.gpu.device().features();
        let how = match timing {
            _ if !features.contains(wgpu::Features::TIMESTAMP_QUERY) => None,
            Timing::Off => None,
            Timing::Submits => Some(How::Passes),
            Timing::Ops if features.contains(wgpu::Features::TIMESTAMP_QUERY_INSIDE_PASSES) => Some(How::Dispatches),
            Timing::Ops => Some(How::PassADispatch),
        };
        let queries_a_set = if how == Some(How::Passes) && !split { QUERIES_OF_A_PASS } else { MOST_QUERIES };
        if (how, queries_a_set) != (self.how, self.queries_a_set) {
            self.pool = Pool::default();
        }
        (self.timing, self.how, self.queries_a_set) = (timing, how, queries_a_set);
    }

    /// What was asked to be timed.
    pub(crate) fn timing(&self) -> Timing {
        self.timing
    }

    /// A watch over one submit, where something is timed.
    pub(crate) fn watch(&self, phase: Phase) -> Option<Watch> {
        self.how.map(|how| Watch {
            gpu: self.gpu.clone(),
            how,
            queries_a_set: self.queries_a_set,
            lease: Lease::take(&self.pool),
            next: 0,
            marks: Vec::new(),
            ledger: self.ledger.clone(),
            phase,
        })
    }

    /// Where tokens are counted, where something is to be timed.
    pub(crate) fn ledger(&self) -> Option<&SharedLedger> {
        (self.timing != Timing::Off).then_some(&self.ledger)
    }

    /// Keeps the times of a submit whose results nobody reads; waits for the oldest where there are many.
    pub(crate) async fn keep(&mut self, times: Option<Times>) -> Result<()> {
        self.pending.extend(times);
        while self.pending.len() > MAX_PENDING {
            if let Some(oldest) = self.pending.pop_front() {
                oldest.finish().await?;
            }
        }
        Ok(())
    }

    /// The times kept so far, for a later submit to wait for.
    pub(crate) fn take_pending(&mut self) -> Vec<Times> {
        self.pending.drain(..).collect()
    }

    /// What was timed since the last call.
    pub(crate) async fn take_ledger(&mut self) -> Result<Ledger> {
        for times in self.take_pending() {
            times.finish().await?;
        }
        Ok(std::mem::take(&mut *lock(&self.ledger.0)))
    }

    /// Forgets what was timed.
    pub(crate) fn clear(&mut self) {
        self.pending.clear();
        self.ledger = SharedLedger::default();
    }
}

/// Two timestamps and what ran between them: a step, or a whole pass.
struct Mark {
    from: u32,
    to: u32,
    tag: Option<Arc<Tag>>,
}

/// Writes the timestamps of one submit.
pub(crate) struct Watch {
    gpu: Gpu,
    how: How,
    queries_a_set: u32,
    lease: Lease,
    /// Timestamps written so far.
    next: u32,
    marks: Vec<Mark>,
    ledger: SharedLedger,
    phase: Phase,
}

impl Watch {
    /// Begins a pass.
    pub(crate) fn begin_pass(&mut self, encoder: &mut wgpu::CommandEncoder) -> wgpu::ComputePass<'static> {
        if self.how == How::Dispatches {
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default()).forget_lifetime();
            self.write_in(&mut pass);
            return pass;
        }
        // Sets have an even number of timestamps, so that both lie in the same one.
        let (from, to) = (self.take(), self.take());
        if self.how == How::Passes {
            self.marks.push(Mark { from, to, tag: None });
        }
        let (set, begin) = self.place(from);
        let timestamp_writes = Some(wgpu::ComputePassTimestampWrites {
            query_set: &self.lease.timer.sets[set],
            beginning_of_pass_write_index: Some(begin),
            end_of_pass_write_index: Some(begin + 1),
        });
        encoder.begin_compute_pass(&wgpu::ComputePassDescriptor { label: None, timestamp_writes }).forget_lifetime()
    }

    /// A step was dispatched in `pass`. Returns whether the pass is to end.
    pub(crate) fn dispatched(&mut self, pass: &mut wgpu::ComputePass<'static>, tag: &Arc<Tag>) -> bool {
        if self.how == How::Passes {
            return false;
        }
        if self.how == How::Dispatches {
            self.write_in(pass);
        }
        self.marks.push(Mark { from: self.next - 2, to: self.next - 1, tag: Some(tag.clone()) });
        self.how == How::PassADispatch
    }

    fn write_in(&mut self, pass: &mut wgpu::ComputePass<'static>) {
        let query = self.take();
        let (set, at) = self.place(query);
        pass.write_timestamp(&self.lease.timer.sets[set], at);
    }

    /// The number of the next timestamp, for which there is room.
    fn take(&mut self) -> u32 {
        let query = self.next;
        self.next += 1;
        let (set, _) = self.place(query);
        if set == self.lease.timer.sets.len() {
            let descriptor = wgpu::QuerySetDescriptor {
                label: Some("times"),
                ty: wgpu::QueryType::Timestamp,
                count: self.queries_a_set,
            };
            self.lease.timer.sets.push(self.gpu.device().create_query_set(&descriptor));
            Tally::add(&self.gpu.tally().query_sets_created, 1);
        }
        query
    }

    /// Set of a timestamp and its place in there.
    fn place(&self, query: u32) -> (usize, u32) {
        ((query / self.queries_a_set) as usize, query % self.queries_a_set)
    }

    /// Words a set takes in the buffers.
    fn stride(&self) -> u64 {
        (u64::from(self.queries_a_set) * 8).next_multiple_of(wgpu::QUERY_RESOLVE_BUFFER_ALIGNMENT) / 8
    }

    /// Words from the first timestamp to the last.
    fn words(&self) -> u64 {
        match self.next {
            0 => 0,
            n => {
                let (set, at) = self.place(n - 1);
                set as u64 * self.stride() + u64::from(at) + 1
            }
        }
    }

    /// Records that the timestamps go where the host reads them.
    pub(crate) fn resolve(mut self, encoder: &mut wgpu::CommandEncoder) -> Result<Recorded> {
        let (bytes, stride) = (self.words() * 8, self.stride());
        let fits = self.lease.timer.buffers.as_ref().is_some_and(|buffers| buffers.bytes >= bytes);
        if !fits {
            let mut allocator = Allocator::new(&self.gpu);
            let usage = wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC;
            let resolved = allocator.buffer("times", bytes, usage);
            let staging = allocator.buffer("times staging", bytes, STAGING);
            allocator.check()?;
            self.lease.timer.buffers = Some(Buffers { resolved, staging, bytes });
        }
        if let Some(buffers) = &self.lease.timer.buffers {
            for (i, set) in self.lease.timer.sets.iter().enumerate() {
                let written = self.next.saturating_sub(i as u32 * self.queries_a_set).min(self.queries_a_set);
                if written > 0 {
                    encoder.resolve_query_set(set, 0..written, &buffers.resolved, i as u64 * stride * 8);
                }
            }
            if bytes > 0 {
                encoder.copy_buffer_to_buffer(&buffers.resolved, 0, &buffers.staging, 0, bytes);
            }
        }
        Ok(Recorded(self))
    }
}

/// A submit whose times can be asked for once it is submitted.
pub(crate) struct Recorded(Watch);

impl Recorded {
    /// Asks for the times.
    pub(crate) fn read(self, submission: wgpu::SubmissionIndex) -> Result<Times> {
        let watch = self.0;
        let reading = match &watch.lease.timer.buffers {
            Some(buffers) if watch.next > 0 => Some(Reading::start(
                &watch.gpu,
                Readback::Profile,
                &buffers.staging,
                watch.words() * 8,
                Some(submission),
            )?),
            _ => None,
        };
        Ok(Times { reading, watch })
    }
}

/// Times that were asked for. Dropping them forgets them.
pub(crate) struct Times {
    // Dropped before the watch, whose buffer it maps.
    reading: Option<Reading>,
    watch: Watch,
}

impl Times {
    /// Waits for the times and adds them to the ledger.
    pub(crate) async fn finish(self) -> Result<()> {
        let Times { reading, watch } = self;
        let Some(reading) = reading else { return Ok(()) };
        let words: Vec<u64> = bytemuck::pod_collect_to_vec(&reading.finish().await?);
        let ns_per_tick = f64::from(watch.gpu.queue().get_timestamp_period());
        let ticks = |query: u32| {
            let (set, at) = watch.place(query);
            words[set * watch.stride() as usize + at as usize]
        };
        let mut ledger = lock(&watch.ledger.0);
        for mark in &watch.marks {
            let (from, to) = (ticks(mark.from), ticks(mark.to));
            ledger.note_ticks(&[from, to], ns_per_tick);
            // A device whose clock was set anew in between gives no time.
            let ms = to.saturating_sub(from) as f64 * ns_per_tick / 1e6;
            match &mark.tag {
                Some(tag) => ledger.add_steps(watch.phase, tag, Sum { count: 1, ms }),
                None => ledger.add_submit(watch.phase, ms),
            }
        }
        Ok(())
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(|e| e.into_inner())
}
