//! The backends behind one type.

use super::backend::{Backend, BackendInfo, Burst, Counters};
use crate::cpu::backend::CpuBackend;
use crate::error::Result;
use crate::gpu::GpuBackend;

pub(super) enum AnyBackend {
    Cpu(Box<CpuBackend>),
    Gpu(Box<GpuBackend>),
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
