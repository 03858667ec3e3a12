//! Reading a staging buffer: mapping it, and waiting for what fills it.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use super::WebGpu;
use crate::engine::clock::now_ms;
use crate::error::{Error, Result};
use crate::gpu::driver::Arrived;
use crate::gpu::tally::Tally;

/// A result that a callback delivers.
struct Slot<T> {
    value: Option<T>,
    waker: Option<Waker>,
}

/// A function that delivers a value and a future that waits for it.
fn oneshot<T>() -> (impl FnOnce(T) + use<T>, impl Future<Output = T> + use<T>) {
    let slot = Arc::new(Mutex::new(Slot { value: None, waker: None }));
    let receiver = slot.clone();
    let send = move |value| {
        let mut slot = slot.lock().unwrap_or_else(|e| e.into_inner());
        slot.value = Some(value);
        if let Some(waker) = slot.waker.take() {
            waker.wake();
        }
    };
    let receive = poll_fn(move |context| {
        let mut slot = receiver.lock().unwrap_or_else(|e| e.into_inner());
        match slot.value.take() {
            Some(value) => Poll::Ready(value),
            None => {
                slot.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    });
    (send, receive)
}

/// A device that has not done its work by then has stalled.
const STALLED: Duration = Duration::from_secs(600);

/// When the bytes were there, and whether they are.
type Mapped = (f64, Result<(), wgpu::BufferAsyncError>);

/// The bytes of a staging buffer once the work submitted before has run.
pub(super) struct Mapping {
    gpu: WebGpu,
    staging: wgpu::Buffer,
    bytes: u64,
    /// What fills the staging buffer; `None` waits for everything submitted.
    submission: Option<wgpu::SubmissionIndex>,
    mapped: Pin<Box<dyn Future<Output = Mapped>>>,
}

impl Mapping {
    /// Asks for the first `bytes` (a multiple of 4) of `staging`, which `submission` fills.
    pub(super) fn start(
        gpu: &WebGpu,
        staging: &wgpu::Buffer,
        bytes: u64,
        submission: Option<wgpu::SubmissionIndex>,
    ) -> Self {
        let (send, receive) = oneshot();
        staging.map_async(wgpu::MapMode::Read, ..bytes, |result| send((now_ms(), result)));
        Tally::add(&gpu.inner.tally.maps, 1);
        Mapping { gpu: gpu.clone(), staging: staging.clone(), bytes, submission, mapped: Box::pin(receive) }
    }

    /// Waits for the bytes.
    pub(super) async fn finish(mut self) -> Result<Arrived> {
        // In a browser this does nothing: the event loop delivers the callback.
        let wait = wgpu::PollType::Wait { submission_index: self.submission.clone(), timeout: Some(STALLED) };
        let polled = self.gpu.device().poll(wait);
        polled.map_err(|e| Error::Device { reason: format!("waiting for the device: {e}") })?;
        let (at_ms, mapped) = self.mapped.as_mut().await;
        mapped.map_err(unreadable)?;
        let bytes = self.staging.get_mapped_range(..self.bytes).map_err(unreadable)?.to_vec();
        Tally::add(&self.gpu.inner.tally.bytes_read, self.bytes);
        Ok(Arrived { bytes, at_ms })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // Cancels a reading that nobody waits for any more. The buffer is filled again in the order of submits.
        self.staging.unmap();
    }
}

fn unreadable(error: impl std::fmt::Display) -> Error {
    Error::Device { reason: format!("a buffer could not be read: {error}") }
}
