//! Buffers: the device's memory, or pinned memory of the host where the host reads.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use blueshift::{Error, Result};
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::CUdeviceptr;

use crate::errors::{describe, failed};
use crate::stream::Stream;

/// A buffer, which is freed when it is dropped.
#[derive(Debug)]
pub(crate) struct Memory {
    stream: Stream,
    place: Place,
    /// Bytes it has; 0 where it could not be allocated.
    pub(crate) bytes: u64,
    /// A number that no other buffer of the process ever has.
    pub(crate) id: u64,
}

/// Where a buffer lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Device(CUdeviceptr),
    /// Pinned, so that the device copies to it while others work.
    Host(NonNull<u8>),
    /// Nowhere: it could not be allocated.
    Nowhere,
}

// SAFETY: the memory is the buffer's own; what reads and writes it is ordered by the stream, and on the host by waiting for it.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Zeroed memory of the device.
    ///
    /// # Errors
    /// Why it could not be allocated.
    pub(crate) fn on_device(stream: &Stream, bytes: u64) -> Result<Self, String> {
        stream.device().bind().map_err(|e| e.to_string())?;
        // SAFETY: the context is current.
        let pointer = unsafe { result::malloc_sync(bytes as usize) }.map_err(|e| refused(stream, e))?;
        let memory = Memory::new(stream, Place::Device(pointer), bytes);
        // SAFETY: the memory was allocated with that many bytes.
        let zeroed = unsafe { result::memset_d8_async(pointer, 0, bytes as usize, stream.raw()) };
        zeroed.map_err(describe)?;
        Ok(memory)
    }

    /// Zeroed pinned memory of the host.
    ///
    /// # Errors
    /// Why it could not be allocated.
    pub(crate) fn on_host(stream: &Stream, bytes: u64) -> Result<Self, String> {
        stream.device().bind().map_err(|e| e.to_string())?;
        // SAFETY: the context is current; no flags are set.
        let pointer = unsafe { result::malloc_host(bytes as usize, 0) }.map_err(describe)?;
        let pointer = NonNull::new(pointer.cast::<u8>()).ok_or("the driver gave no memory")?;
        // SAFETY: the memory was allocated with that many bytes, and nothing else knows of it.
        unsafe { pointer.as_ptr().write_bytes(0, bytes as usize) };
        Ok(Memory::new(stream, Place::Host(pointer), bytes))
    }

    /// A buffer in the place of one that could not be allocated.
    pub(crate) fn nowhere(stream: &Stream) -> Self {
        Memory::new(stream, Place::Nowhere, 0)
    }

    fn new(stream: &Stream, place: Place, bytes: u64) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Memory { stream: stream.clone(), place, bytes, id: NEXT.fetch_add(1, Relaxed) }
    }

    /// What kernels are given for it.
    pub(crate) fn pointer(&self) -> CUdeviceptr {
        match self.place {
            Place::Device(pointer) => pointer,
            // Pinned memory has the same address on the device.
            Place::Host(pointer) => pointer.as_ptr() as CUdeviceptr,
            Place::Nowhere => 0,
        }
    }

    /// Where `len` bytes at `offset` begin.
    ///
    /// # Errors
    /// `Device` where they are not all inside.
    pub(crate) fn at(&self, offset: u64, len: u64) -> Result<Place> {
        if offset.checked_add(len).is_none_or(|end| end > self.bytes) {
            let reason = format!("{len} bytes at {offset} leave a buffer of {} bytes", self.bytes);
            return Err(Error::Device { reason });
        }
        Ok(match self.place {
            Place::Device(pointer) => Place::Device(pointer + offset),
            // SAFETY: the offset is inside the buffer or at its end.
            Place::Host(pointer) => Place::Host(unsafe { pointer.add(offset as usize) }),
            Place::Nowhere => Place::Nowhere,
        })
    }

    /// A copy of the first `len` bytes of a host buffer, which nothing writes at this time.
    pub(crate) fn to_vec(&self, len: u64) -> Result<Vec<u8>> {
        match self.at(0, len)? {
            // SAFETY: the place has that many bytes; the caller has waited for what writes them.
            Place::Host(at) => Ok(unsafe { std::slice::from_raw_parts(at.as_ptr(), len as usize) }.to_vec()),
            place => {
                Err(Error::Device { reason: format!("a reading from a buffer that is no staging buffer: {place:?}") })
            }
        }
    }
}

/// Copies bytes in the order of a stream, from the device to the device or to the host.
pub(crate) fn copy(stream: &Stream, from: Place, to: Place, bytes: u64) -> Result<()> {
    let n = bytes as usize;
    // SAFETY: both places have that many bytes, as `Memory::at` has said; the buffers outlive the work, for they wait for it when they are
    // dropped.
    let copied = unsafe {
        match (from, to) {
            (Place::Device(from), Place::Device(to)) => result::memcpy_dtod_async(to, from, n, stream.raw()),
            (Place::Device(from), Place::Host(to)) => {
                result::memcpy_dtoh_async(std::slice::from_raw_parts_mut(to.as_ptr(), n), from, stream.raw())
            }
            (Place::Host(from), Place::Device(to)) => {
                result::memcpy_htod_async(to, std::slice::from_raw_parts(from.as_ptr(), n), stream.raw())
            }
            _ => return Err(Error::Device { reason: format!("a copy from {from:?} to {to:?}") }),
        }
    };
    copied.map_err(|e| failed("copying", e))
}

/// Why the device has no memory, with what is free.
fn refused(stream: &Stream, error: DriverError) -> String {
    let device = stream.device();
    let total = device.total_bytes();
    device.free_bytes().map_or_else(
        |_| describe(error),
        |free| format!("{}: {free} of the GPU's {total} bytes are free", describe(error)),
    )
}

impl Drop for Memory {
    fn drop(&mut self) {
        // What was submitted may still use it.
        let waited = self.stream.synchronize();
        // SAFETY: nothing uses the memory any more.
        let freed = unsafe {
            match self.place {
                Place::Device(pointer) => result::free_sync(pointer),
                Place::Host(pointer) => result::free_host(pointer.as_ptr().cast()),
                Place::Nowhere => Ok(()),
            }
        };
        self.stream.note(waited.and(freed.map_err(|e| failed("freeing memory", e))));
    }
}
