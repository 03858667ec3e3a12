//! Timestamps around what a submit does, resolved in the same submit and read with its results.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use super::WebGpu;
use super::read::Mapping;
use crate::error::Result;
use crate::gpu::driver::{Span, Spans, Timed, Waiting};
use crate::gpu::tally::Tally;
use crate::plan::Tag;

/// Timestamps a query set has: two for a submit of one pass, the most there may be for many steps.
const QUERIES_OF_A_PASS: u32 = 2;
const MOST_QUERIES: u32 = wgpu::QUERY_SET_MAX_QUERIES;

/// What is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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

/// Timers that are not in use, by what they time and the timestamps of a set.
#[derive(Debug, Default)]
pub(super) struct Pools(Mutex<HashMap<(How, u32), Pool>>);

impl Pools {
    fn of(&self, how: How, queries_a_set: u32) -> Pool {
        lock(&self.0).entry((how, queries_a_set)).or_default().clone()
    }
}

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

/// Two timestamps and what ran between them: a step, or a whole pass.
struct Mark {
    from: u32,
    to: u32,
    tag: Option<Arc<Tag>>,
}

/// Writes the timestamps of one submit.
pub(super) struct Watch {
    gpu: WebGpu,
    how: How,
    queries_a_set: u32,
    lease: Lease,
    /// Timestamps written so far.
    next: u32,
    marks: Vec<Mark>,
}

impl Watch {
    /// A watch over one submit of a device that has timestamps.
    pub(super) fn new(gpu: &WebGpu, timed: Timed) -> Self {
        let inside_passes = gpu.device().features().contains(wgpu::Features::TIMESTAMP_QUERY_INSIDE_PASSES);
        let how = match (timed.each, inside_passes) {
            (false, _) => How::Passes,
            (true, true) => How::Dispatches,
            (true, false) => How::PassADispatch,
        };
        let queries_a_set = if how == How::Passes && !timed.split { QUERIES_OF_A_PASS } else { MOST_QUERIES };
        let lease = Lease::take(&gpu.inner.timers.of(how, queries_a_set));
        Watch { gpu: gpu.clone(), how, queries_a_set, lease, next: 0, marks: Vec::new() }
    }

    /// Begins a pass.
    pub(super) fn begin_pass(&mut self, encoder: &mut wgpu::CommandEncoder) -> wgpu::ComputePass<'static> {
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
    pub(super) fn dispatched(&mut self, pass: &mut wgpu::ComputePass<'static>, tag: &Arc<Tag>) -> bool {
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
            Tally::add(&self.gpu.inner.tally.query_sets_created, 1);
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
    pub(super) fn resolve(mut self, encoder: &mut wgpu::CommandEncoder) -> Recorded {
        let (bytes, stride) = (self.words() * 8, self.stride());
        let fits = self.lease.timer.buffers.as_ref().is_some_and(|buffers| buffers.bytes >= bytes);
        if !fits {
            use wgpu::BufferUsages as U;
            let size = bytes.max(16);
            let resolved = self.gpu.plain_buffer("times", size, U::QUERY_RESOLVE | U::COPY_SRC);
            let staging = self.gpu.plain_buffer("times staging", size, U::MAP_READ | U::COPY_DST);
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
        Recorded(self)
    }
}

/// A submit whose times can be asked for once it is submitted.
pub(super) struct Recorded(Watch);

impl Recorded {
    /// Asks for the times.
    pub(super) fn read(self, submission: wgpu::SubmissionIndex) -> Waiting<Result<Spans>> {
        let watch = self.0;
        let mapping = match &watch.lease.timer.buffers {
            Some(buffers) if watch.next > 0 => {
                Some(Mapping::start(&watch.gpu, &buffers.staging, watch.words() * 8, Some(submission)))
            }
            _ => None,
        };
        let times = Times { mapping, watch };
        Box::pin(times.spans())
    }
}

/// Times that were asked for.
struct Times {
    // Dropped before the watch, whose buffer it maps.
    mapping: Option<Mapping>,
    watch: Watch,
}

impl Times {
    async fn spans(self) -> Result<Spans> {
        let Times { mapping, watch } = self;
        let Some(mapping) = mapping else { return Ok(Spans::default()) };
        let words: Vec<u64> = bytemuck::pod_collect_to_vec(&mapping.finish().await?.bytes);
        let ticks = |query: u32| {
            let (set, at) = watch.place(query);
            words[set * watch.stride() as usize + at as usize]
        };
        let span = |mark: &Mark| Span { tag: mark.tag.clone(), ticks: [ticks(mark.from), ticks(mark.to)] };
        let spans = watch.marks.iter().map(span).collect();
        Ok(Spans { spans, ns_per_tick: f64::from(watch.gpu.queue().get_timestamp_period()) })
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(|e| e.into_inner())
}
