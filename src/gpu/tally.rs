//! Counts of what was asked of the device.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::engine::backend::Counters;

/// Counters of one device, raised at the calls they count.
#[derive(Debug, Default)]
pub struct Tally {
    /// Command buffers submitted.
    pub submits: AtomicU64,
    /// Dispatches recorded.
    pub dispatches: AtomicU64,
    /// Readings asked for.
    pub maps: AtomicU64,
    /// Bytes read.
    pub bytes_read: AtomicU64,
    /// Buffers created.
    pub buffers_created: AtomicU64,
    /// Their bytes.
    pub buffer_bytes: AtomicU64,
    /// Kernels bound.
    pub bind_groups_created: AtomicU64,
    /// Query sets created.
    pub query_sets_created: AtomicU64,
}

impl Tally {
    /// Raises a counter.
    pub fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Relaxed);
    }

    /// The counters since the device was opened.
    pub fn counters(&self) -> Counters {
        Counters {
            submits: self.submits.load(Relaxed),
            dispatches: self.dispatches.load(Relaxed),
            maps: self.maps.load(Relaxed),
            bytes_read: self.bytes_read.load(Relaxed),
            buffers_created: self.buffers_created.load(Relaxed),
            buffer_bytes: self.buffer_bytes.load(Relaxed),
            bind_groups_created: self.bind_groups_created.load(Relaxed),
            query_sets_created: self.query_sets_created.load(Relaxed),
        }
    }
}
