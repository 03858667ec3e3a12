//! The one way from the device to the host: copy to a staging buffer, map it, read.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use super::device::Gpu;
use super::tally::Tally;
use crate::error::{Error, Result};

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

/// The first `bytes` (a multiple of 4) of a staging buffer, once all work submitted before has run.
pub(crate) async fn read(gpu: &Gpu, staging: &wgpu::Buffer, bytes: u64) -> Result<Vec<u8>> {
    let (send, receive) = oneshot();
    staging.map_async(wgpu::MapMode::Read, ..bytes, send);
    Tally::add(&gpu.tally().maps, 1);
    // In a browser this does nothing: the event loop delivers the callback.
    let polled = gpu.device().poll(wgpu::PollType::wait_indefinitely());
    polled.map_err(|e| Error::Device { reason: format!("waiting for the device: {e}") })?;
    let mapped = receive.await;
    gpu.check()?;
    mapped.map_err(|e| Error::Device { reason: format!("a buffer could not be read: {e}") })?;
    let view = staging
        .get_mapped_range(..bytes)
        .map_err(|e| Error::Device { reason: format!("a buffer could not be read: {e}") })?;
    let data = view.to_vec();
    drop(view);
    staging.unmap();
    Tally::add(&gpu.tally().bytes_read, bytes);
    Ok(data)
}
