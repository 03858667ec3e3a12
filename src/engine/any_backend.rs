//! The backends behind one type.

use super::backend::{
    Backend, BackendInfo, Burst, Capacity, Counters, Drawn, Execution, Readback, RingCounters, Row, Timing, Trip,
};
use super::ledger::Phase;
use crate::cpu::backend::CpuBackend;
use crate::error::Result;
use crate::gpu::{self, GpuBackend};

pub(super) enum AnyBackend {
    Cpu(Box<CpuBackend>),
    Gpu(Box<GpuBackend>),
}

/// A burst whose tokens have not been read. Dropping it discards them.
pub(super) enum InFlight {
    /// The CPU computes at once.
    Ready(Vec<Drawn>),
    Gpu(gpu::InFlight),
}

impl InFlight {
    /// Waits for what was drawn, by row.
    pub(super) async fn drawn(self) -> Result<Vec<Drawn>> {
        match self {
            Self::Ready(drawn) => Ok(drawn),
            Self::Gpu(in_flight) => in_flight.drawn().await,
        }
    }
}

impl AnyBackend {
    /// Whether work is submitted and read back later.
    pub(super) fn is_gpu(&self) -> bool {
        matches!(self, Self::Gpu(_))
    }

    /// Starts a burst; on a GPU without waiting for it.
    pub(super) async fn submit_burst(&mut self, burst: Burst<'_>) -> Result<InFlight> {
        match self {
            Self::Cpu(b) => Ok(InFlight::Ready(b.burst(burst).await?)),
            Self::Gpu(b) => Ok(InFlight::Gpu(b.submit_burst(burst)?)),
        }
    }

    pub(super) fn ring_counters(&self) -> RingCounters {
        match self {
            Self::Cpu(_) => RingCounters::default(),
            Self::Gpu(b) => b.ring_counters(),
        }
    }

    /// Restricts readbacks; the CPU has none.
    pub(super) fn restrict_readbacks(&self, allowed: Option<Vec<Readback>>) {
        if let Self::Gpu(b) = self {
            b.restrict_readbacks(allowed);
        }
    }

    /// What was asked to be timed.
    pub(super) fn timing(&self) -> Timing {
        match self {
            Self::Cpu(b) => b.timing(),
            Self::Gpu(b) => b.timing(),
        }
    }

    /// Forgets what was timed.
    pub(super) fn clear_times(&mut self) {
        match self {
            Self::Cpu(b) => b.clear_times(),
            Self::Gpu(b) => b.clear_times(),
        }
    }

    /// Milliseconds a GPU was busy in `phase`, where submits were timed.
    pub(super) fn busy_ms(&self, phase: Phase) -> Option<f64> {
        match self {
            Self::Cpu(_) => None,
            Self::Gpu(b) => b.busy_ms(phase),
        }
    }

    /// Where the logits lie on a GPU.
    pub(super) fn logits_buffer(&self) -> Option<gpu::driver::Buffer> {
        match self {
            Self::Cpu(_) => None,
            Self::Gpu(b) => Some(b.logits_buffer().clone()),
        }
    }
}

impl Backend for AnyBackend {
    fn info(&self) -> &BackendInfo {
        match self {
            Self::Cpu(b) => b.info(),
            Self::Gpu(b) => b.info(),
        }
    }

    fn max_chunk(&self) -> usize {
        match self {
            Self::Cpu(b) => b.max_chunk(),
            Self::Gpu(b) => b.max_chunk(),
        }
    }

    fn capacity(&self) -> Capacity {
        match self {
            Self::Cpu(b) => b.capacity(),
            Self::Gpu(b) => b.capacity(),
        }
    }

    fn set_pages(&mut self, slot: usize, first: usize, pages: &[u32]) -> Result<()> {
        match self {
            Self::Cpu(b) => b.set_pages(slot, first, pages),
            Self::Gpu(b) => b.set_pages(slot, first, pages),
        }
    }

    fn begin(&mut self, slot: usize, tokens: &[u32]) -> Result<()> {
        match self {
            Self::Cpu(b) => b.begin(slot, tokens),
            Self::Gpu(b) => b.begin(slot, tokens),
        }
    }

    fn copy_page(&mut self, from: u32, to: u32) -> Result<()> {
        match self {
            Self::Cpu(b) => b.copy_page(from, to),
            Self::Gpu(b) => b.copy_page(from, to),
        }
    }

    async fn read_page(&mut self, page: u32) -> Result<Vec<u8>> {
        match self {
            Self::Cpu(b) => b.read_page(page).await,
            Self::Gpu(b) => b.read_page(page).await,
        }
    }

    fn write_page(&mut self, page: u32, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Cpu(b) => b.write_page(page, bytes),
            Self::Gpu(b) => b.write_page(page, bytes),
        }
    }

    fn save_state(&mut self, slot: usize, snapshot: usize) -> Result<()> {
        match self {
            Self::Cpu(b) => b.save_state(slot, snapshot),
            Self::Gpu(b) => b.save_state(slot, snapshot),
        }
    }

    fn load_state(&mut self, slot: usize, snapshot: usize) -> Result<()> {
        match self {
            Self::Cpu(b) => b.load_state(slot, snapshot),
            Self::Gpu(b) => b.load_state(slot, snapshot),
        }
    }

    async fn read_state(&mut self, snapshot: usize) -> Result<Vec<u8>> {
        match self {
            Self::Cpu(b) => b.read_state(snapshot).await,
            Self::Gpu(b) => b.read_state(snapshot).await,
        }
    }

    fn write_state(&mut self, snapshot: usize, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Cpu(b) => b.write_state(snapshot, bytes),
            Self::Gpu(b) => b.write_state(snapshot, bytes),
        }
    }

    async fn feed(&mut self, slot: usize, tokens: &[u32], position: usize) -> Result<()> {
        match self {
            Self::Cpu(b) => b.feed(slot, tokens, position).await,
            Self::Gpu(b) => b.feed(slot, tokens, position).await,
        }
    }

    async fn head(&mut self, slot: usize, row: usize) -> Result<()> {
        match self {
            Self::Cpu(b) => b.head(slot, row).await,
            Self::Gpu(b) => b.head(slot, row).await,
        }
    }

    async fn forward(&mut self, rows: &[Row<'_>]) -> Result<()> {
        match self {
            Self::Cpu(b) => b.forward(rows).await,
            Self::Gpu(b) => b.forward(rows).await,
        }
    }

    async fn read_logits(&mut self, slot: usize) -> Result<Vec<f32>> {
        match self {
            Self::Cpu(b) => b.read_logits(slot).await,
            Self::Gpu(b) => b.read_logits(slot).await,
        }
    }

    async fn embedding(&mut self, row: usize) -> Result<Vec<f32>> {
        match self {
            Self::Cpu(b) => b.embedding(row).await,
            Self::Gpu(b) => b.embedding(row).await,
        }
    }

    async fn take_trip(&mut self, slot: usize) -> Result<Option<Trip>> {
        match self {
            Self::Cpu(b) => b.take_trip(slot).await,
            Self::Gpu(b) => b.take_trip(slot).await,
        }
    }

    fn configure(&mut self, execution: Execution) -> Result<()> {
        match self {
            Self::Cpu(b) => b.configure(execution),
            Self::Gpu(b) => b.configure(execution),
        }
    }

    async fn burst(&mut self, burst: Burst<'_>) -> Result<Vec<Drawn>> {
        match self {
            Self::Cpu(b) => b.burst(burst).await,
            Self::Gpu(b) => b.burst(burst).await,
        }
    }

    fn counters(&self) -> Counters {
        match self {
            Self::Cpu(b) => b.counters(),
            Self::Gpu(b) => b.counters(),
        }
    }
}
