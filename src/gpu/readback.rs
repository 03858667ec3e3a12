//! The one way from the device to the host: copy to a staging buffer, then read. Every reading names its purpose.

use super::device::{Gpu, pause};
use super::driver::{Arrived, Buffer, Submission, Waiting};
use crate::engine::backend::Readback;
use crate::engine::clock::now_ms;
use crate::error::Result;

/// A reading that was asked for: the bytes of a staging buffer once the work submitted before has run. Dropping it cancels it.
pub(crate) struct Reading {
    gpu: Gpu,
    purpose: Readback,
    arriving: Waiting<Result<Arrived>>,
}

impl Reading {
    /// Asks for the first `bytes` (a multiple of 4) of `staging`, which `submission` fills.
    ///
    /// # Errors
    /// `UnexpectedReadback` where `purpose` is not among those allowed.
    pub(crate) fn start(
        gpu: &Gpu,
        purpose: Readback,
        staging: &Buffer,
        bytes: u64,
        submission: Option<&Submission>,
    ) -> Result<Self> {
        gpu.check_readback(purpose)?;
        let arriving = gpu.driver().read(staging, bytes, submission);
        Ok(Reading { gpu: gpu.clone(), purpose, arriving })
    }

    /// Waits for the bytes.
    pub(crate) async fn finish(self) -> Result<Vec<u8>> {
        let arrived = self.arriving.await;
        self.gpu.check()?;
        let Arrived { bytes, at_ms } = arrived?;
        let delay_ms = at_ms + self.gpu.readback_delay_ms() - now_ms();
        // What a measurement of the device reads comes at once.
        if delay_ms >= 1.0 && self.purpose != Readback::Test {
            pause(delay_ms as u32).await;
        }
        Ok(bytes)
    }
}

/// The first `bytes` (a multiple of 4) of a staging buffer, once everything submitted has run.
///
/// # Errors
/// `UnexpectedReadback` where `purpose` is not among those allowed, `Device` where the device failed.
pub(crate) async fn read(gpu: &Gpu, purpose: Readback, staging: &Buffer, bytes: u64) -> Result<Vec<u8>> {
    Reading::start(gpu, purpose, staging, bytes, None)?.finish().await
}
