//! The fastest a token could be: its weights at the speed of memory, plus its dispatches at the cost of an empty one.

use serde::Serialize;

use super::Engine;
use super::any_backend::AnyBackend;
use crate::error::Result;

/// What a device was measured to do at best.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Floor {
    /// Streaming reads, bytes a second.
    pub bytes_per_second: f64,
    /// One empty dispatch that depends on the one before it, in seconds.
    pub seconds_per_dispatch: f64,
}

impl Floor {
    /// Milliseconds that reading `bytes` in `dispatches` dispatches takes at least.
    pub fn milliseconds(&self, bytes: u64, dispatches: f64) -> f64 {
        (bytes as f64 / self.bytes_per_second + dispatches * self.seconds_per_dispatch) * 1e3
    }
}

impl Engine {
    /// Measures the device that holds the model. Takes about a second.
    pub async fn measure_floor(&self) -> Result<Floor> {
        match &self.backend {
            AnyBackend::Cpu(cpu) => Ok(Floor { bytes_per_second: cpu.measure_bandwidth(), seconds_per_dispatch: 0.0 }),
            AnyBackend::Gpu(gpu) => {
                let (bytes_per_second, seconds_per_dispatch) = gpu.measure_floor().await?;
                Ok(Floor { bytes_per_second, seconds_per_dispatch })
            }
        }
    }
}
