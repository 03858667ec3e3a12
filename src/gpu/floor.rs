//! What the device does at best: streaming reads, and the cost of a dispatch that depends on the one before.

use super::buffers::Allocator;
use super::device::Gpu;
use super::driver::{Buffer, Draft, Usage};
use super::kernels::Kernel;
use super::params;
use super::readback;
use super::recorder::{Commands, Grid, Step};
use crate::engine::backend::Readback;
use crate::engine::clock::now_ms;
use crate::error::Result;
use crate::plan::Tag;

/// Bytes streamed: more than any cache holds, on an adapter that computes on the processor less.
const STREAM_BYTES: u64 = 1 << 30;
const SOFTWARE_STREAM_BYTES: u64 = 64 << 20;
/// Workgroups of the streaming kernel and lanes in each.
const GROUPS: u32 = 1024;
const LANES: u32 = 256;
const EFFORT: Effort = Effort { min_ms: 40.0, pairs: 5, max_repeats: 1 << 14 };

/// How much is done to measure repeated work.
#[derive(Debug, Clone, Copy)]
pub(super) struct Effort {
    /// Work that takes at least this long is timed, so that the latency of reading back does not count.
    pub(super) min_ms: f64,
    /// Times it is timed.
    pub(super) pairs: usize,
    /// Most repetitions in one submit; the second of a pair has twice as many.
    pub(super) max_repeats: usize,
}

/// Seconds one of many repetitions takes, where `milliseconds` tells the time of n: the median difference between n and 2n of them.
/// Where a device's clock changed meanwhile and the difference says nothing, the longer time with its latency stands in.
pub(super) async fn seconds_each(effort: Effort, milliseconds: impl AsyncFn(usize) -> Result<f64>) -> Result<f64> {
    let mut n = 1;
    while 2 * n <= effort.max_repeats && milliseconds(n).await? < effort.min_ms {
        n *= 2;
    }
    let mut pairs = Vec::new();
    for _ in 0..effort.pairs {
        pairs.push((milliseconds(n).await?, milliseconds(2 * n).await?));
    }
    pairs.sort_by(|a, b| (a.1 - a.0).total_cmp(&(b.1 - b.0)));
    let (once, twice) = pairs[pairs.len() / 2];
    let ms = if twice > 1.5 * once { twice - once } else { twice / 2.0 };
    Ok(ms / n as f64 / 1e3)
}

/// Measures `gpu`: bytes a second, seconds a dispatch.
pub(super) async fn measure(gpu: &Gpu) -> Result<(f64, f64)> {
    let bench = Bench::new(gpu).await?;
    let seconds_per_pass = bench.seconds(&bench.stream).await?;
    let seconds_per_dispatch = bench.seconds(&bench.empty).await?;
    Ok((bench.stream_bytes as f64 / seconds_per_pass, seconds_per_dispatch))
}

/// A step that does nothing but depend on the one before.
pub(super) async fn empty(gpu: &Gpu) -> Result<Step> {
    let mut allocator = Allocator::new(gpu);
    let out = allocator.buffer("empty result", 128, Usage::Storage);
    let uniforms = allocator.filled("empty parameters", &[0; 256], Usage::Uniform);
    allocator.finish().await?;
    Ok(Step::new(gpu, &empty_draft(&out), &uniforms, 0))
}

fn empty_draft(out: &Buffer) -> Draft {
    Draft {
        kernel: Kernel::Empty,
        params: vec![0; 4],
        bindings: vec![(10, out.clone())],
        grid: Grid::Rows { x: 1 },
        tag: Tag::of("empty", ""),
    }
}

struct Bench<'a> {
    gpu: &'a Gpu,
    stream: Step,
    stream_bytes: u64,
    empty: Step,
    out: Buffer,
    staging: Buffer,
}

impl<'a> Bench<'a> {
    async fn new(gpu: &'a Gpu) -> Result<Self> {
        let mut allocator = Allocator::new(gpu);
        let wanted = if gpu.is_software() { SOFTWARE_STREAM_BYTES } else { STREAM_BYTES };
        // Four reads of 16 bytes a lane at a time.
        let unit = u64::from(GROUPS * LANES) * 64;
        let stream_bytes = wanted.min(gpu.max_binding()) / unit * unit;
        let reads = (stream_bytes / u64::from(GROUPS * LANES) / 16) as u32;
        let data = allocator.buffer("floor data", stream_bytes, Usage::Storage);
        let out = allocator.buffer("floor result", 128, Usage::Storage);
        let staging = allocator.buffer("floor staging", 4, Usage::Staging);
        let uniforms = allocator.filled("floor parameters", &[0; 512], Usage::Uniform);
        let stream = Draft {
            kernel: Kernel::StreamRead,
            params: bytemuck::bytes_of(&params::StreamRead { zero: 0, reads }).to_vec(),
            bindings: vec![(2, data), (10, out.clone())],
            grid: Grid::Rows { x: GROUPS },
            tag: Tag::of("stream_read", ""),
        };
        let empty = empty_draft(&out);
        super::buffers::write(gpu, &uniforms, 0, &stream.params);
        allocator.finish().await?;
        let (stream, empty) = (Step::new(gpu, &stream, &uniforms, 0), Step::new(gpu, &empty, &uniforms, 1));
        Ok(Bench { gpu, stream, stream_bytes, empty, out, staging })
    }

    /// Seconds one of many repetitions of `step` takes.
    async fn seconds(&self, step: &Step) -> Result<f64> {
        seconds_each(EFFORT, async |n| self.milliseconds(step, n).await).await
    }

    /// Milliseconds from submitting `n` repetitions to having read the result.
    async fn milliseconds(&self, step: &Step, n: usize) -> Result<f64> {
        let start = now_ms();
        let mut commands = Commands::new(self.gpu);
        for _ in 0..n {
            commands.record([step], &[0]);
        }
        commands.copy(&self.out, 0, &self.staging, 4);
        commands.submit();
        readback::read(self.gpu, Readback::Test, &self.staging, 4).await?;
        Ok(now_ms() - start)
    }
}
