//! The backends behind one type.

use super::backend::{Backend, BackendInfo, Burst, Counters};
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
    Ready(Vec<u32>),
    Gpu(gpu::InFlight),
}

impl InFlight {
    /// Waits for the drawn tokens.
    pub(super) async fn tokens(self) -> Result<Vec<u32>> {
        match self {
            Self::Ready(ids) => Ok(ids),
            Self::Gpu(in_flight) => in_flight.tokens().await,
        }
    }
}

impl AnyBackend {
    /// Bursts that may be in flight at once.
    pub(super) fn max_in_flight(&self) -> usize {
        match self {
            Self::Cpu(_) => 1,
            Self::Gpu(_) => gpu::MAX_IN_FLIGHT,
        }
    }

    /// Starts a burst; on a GPU without waiting for it.
    pub(super) async fn submit_burst(&mut self, burst: Burst<'_>) -> Result<InFlight> {
        match self {
            Self::Cpu(b) => Ok(InFlight::Ready(b.burst(burst).await?)),
            Self::Gpu(b) => Ok(InFlight::Gpu(b.submit_burst(burst)?)),
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

    async fn feed(&mut self, tokens: &[u32], position: usize) -> Result<()> {
        match self {
            Self::Cpu(b) => b.feed(tokens, position).await,
            Self::Gpu(b) => b.feed(tokens, position).await,
        }
    }

    async fn head(&mut self, row: usize) -> Result<()> {
        match self {
            Self::Cpu(b) => b.head(row).await,
            Self::Gpu(b) => b.head(row).await,
        }
    }

    async fn read_logits(&mut self) -> Result<Vec<f32>> {
        match self {
            Self::Cpu(b) => b.read_logits().await,
            Self::Gpu(b) => b.read_logits().await,
        }
    }

    async fn burst(&mut self, burst: Burst<'_>) -> Result<Vec<u32>> {
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
