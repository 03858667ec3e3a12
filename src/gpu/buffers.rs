//! Device buffers, with every allocation's errors caught.

use std::task::{Context, Poll, Waker};

use super::device::Gpu;
use super::driver::{Buffer, Usage, Waiting};
use crate::error::{Error, Result};

/// One allocation whose outcome is not known yet.
struct Pending {
    what: String,
    bytes: u64,
    failed: Waiting<Option<String>>,
}

impl Pending {
    fn error(&self, reason: String) -> Error {
        Error::OutOfDeviceMemory { what: self.what.clone(), bytes: self.bytes, reason }
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
    pub(crate) fn buffer(&mut self, what: &str, bytes: u64, usage: Usage) -> Buffer {
        let size = bytes.next_multiple_of(16).max(16);
        let (buffer, failed) = self.gpu.driver().buffer(what, size, usage);
        self.pending.push(Pending { what: what.into(), bytes: size, failed });
        buffer
    }

    /// A buffer holding `data`.
    pub(crate) fn filled(&mut self, what: &str, data: &[u8], usage: Usage) -> Buffer {
        let buffer = self.buffer(what, data.len() as u64, usage);
        write(&self.gpu, &buffer, 0, data);
        buffer
    }

    /// Reports the failures that are known without waiting.
    pub(crate) fn check(&mut self) -> Result<()> {
        let mut context = Context::from_waker(Waker::noop());
        for mut pending in std::mem::take(&mut self.pending) {
            match pending.failed.as_mut().poll(&mut context) {
                Poll::Ready(None) => {}
                Poll::Ready(Some(reason)) => return Err(pending.error(reason)),
                Poll::Pending => self.pending.push(pending),
            }
        }
        Ok(())
    }

    /// Waits until every allocation is known to have succeeded.
    pub(crate) async fn finish(&mut self) -> Result<()> {
        for mut pending in std::mem::take(&mut self.pending) {
            if let Some(reason) = pending.failed.as_mut().await {
                return Err(pending.error(reason));
            }
        }
        Ok(())
    }
}

/// Writes bytes at an offset that is a multiple of 4; a tail shorter than 4 bytes is padded with zeros.
pub(crate) fn write(gpu: &Gpu, buffer: &Buffer, offset: u64, data: &[u8]) {
    let whole = data.len() & !3;
    if whole > 0 {
        gpu.driver().write(buffer, offset, &data[..whole]);
    }
    let tail = &data[whole..];
    if !tail.is_empty() {
        let mut word = [0; 4];
        word[..tail.len()].copy_from_slice(tail);
        gpu.driver().write(buffer, offset + whole as u64, &word);
    }
}
