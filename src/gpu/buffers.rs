//! Device buffers, with every allocation's errors caught.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::device::Gpu;
use super::tally::Tally;
use crate::error::{Error, Result};

/// Usage of buffers the kernels read and write.
pub(crate) const STORAGE: wgpu::BufferUsages =
    wgpu::BufferUsages::STORAGE.union(wgpu::BufferUsages::COPY_DST).union(wgpu::BufferUsages::COPY_SRC);
/// Usage of the state: one kernel advances it, all others read it as parameters.
pub(crate) const STATE: wgpu::BufferUsages = STORAGE.union(wgpu::BufferUsages::UNIFORM);
/// Usage of the parameters' buffer.
pub(crate) const UNIFORM: wgpu::BufferUsages = wgpu::BufferUsages::UNIFORM.union(wgpu::BufferUsages::COPY_DST);
/// Usage of buffers the host reads.
pub(crate) const STAGING: wgpu::BufferUsages = wgpu::BufferUsages::MAP_READ.union(wgpu::BufferUsages::COPY_DST);

type ErrorFuture = Pin<Box<dyn Future<Output = Option<wgpu::Error>>>>;

/// One allocation whose outcome is not known yet.
struct Pending {
    what: String,
    bytes: u64,
    errors: Vec<ErrorFuture>,
}

impl Pending {
    fn error(&self, error: &wgpu::Error) -> Error {
        Error::OutOfDeviceMemory { what: self.what.clone(), bytes: self.bytes, reason: error.to_string() }
    }
}

/// Creates buffers. A browser reports a failed allocation later, so `finish` must be awaited before the buffers count.
pub(crate) struct Allocator {
    gpu: Gpu,
    pending: Vec<Pending>,
}

impl Allocator {
    pub(crate) fn new(gpu: &Gpu) -> Self {
        Allocator { gpu: gpu.clone(), pending: Vec::new() }
    }

    /// A zeroed buffer of at least `bytes`.
    pub(crate) fn buffer(&mut self, what: &str, bytes: u64, usage: wgpu::BufferUsages) -> wgpu::Buffer {
        let device = self.gpu.device();
        let size = bytes.next_multiple_of(16).max(16);
        let memory = device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let validation = device.push_error_scope(wgpu::ErrorFilter::Validation);
        let buffer =
            device.create_buffer(&wgpu::BufferDescriptor { label: Some(what), size, usage, mapped_at_creation: false });
        let errors: Vec<ErrorFuture> = vec![Box::pin(validation.pop()), Box::pin(memory.pop())];
        Tally::add(&self.gpu.tally().buffers_created, 1);
        Tally::add(&self.gpu.tally().buffer_bytes, size);
        self.pending.push(Pending { what: what.into(), bytes: size, errors });
        buffer
    }

    /// A buffer holding `data`.
    pub(crate) fn filled(&mut self, what: &str, data: &[u8], usage: wgpu::BufferUsages) -> wgpu::Buffer {
        let buffer = self.buffer(what, data.len() as u64, usage);
        write(&self.gpu, &buffer, 0, data);
        buffer
    }

    /// Reports the failures that are known without waiting.
    pub(crate) fn check(&mut self) -> Result<()> {
        let mut context = Context::from_waker(Waker::noop());
        for mut pending in std::mem::take(&mut self.pending) {
            let mut waiting = Vec::new();
            for mut error in std::mem::take(&mut pending.errors) {
                match error.as_mut().poll(&mut context) {
                    Poll::Ready(None) => {}
                    Poll::Ready(Some(error)) => return Err(pending.error(&error)),
                    Poll::Pending => waiting.push(error),
                }
            }
            if !waiting.is_empty() {
                pending.errors = waiting;
                self.pending.push(pending);
            }
        }
        Ok(())
    }

    /// Waits until every allocation is known to have succeeded.
    pub(crate) async fn finish(&mut self) -> Result<()> {
        for mut pending in std::mem::take(&mut self.pending) {
            for error in std::mem::take(&mut pending.errors) {
                if let Some(error) = error.await {
                    return Err(pending.error(&error));
                }
            }
        }
        Ok(())
    }
}

/// Writes bytes at an offset that is a multiple of 4; a tail shorter than 4 bytes is padded with zeros.
pub(crate) fn write(gpu: &Gpu, buffer: &wgpu::Buffer, offset: u64, data: &[u8]) {
    let whole = data.len() & !3;
    if whole > 0 {
        gpu.queue().write_buffer(buffer, offset, &data[..whole]);
    }
    let tail = &data[whole..];
    if !tail.is_empty() {
        let mut word = [0; 4];
        word[..tail.len()].copy_from_slice(tail);
        gpu.queue().write_buffer(buffer, offset + whole as u64, &word);
    }
}
