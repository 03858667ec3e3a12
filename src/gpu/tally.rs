//! Counts of what was asked of the device.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::engine::backend::Counters;

/// Counters of one device, raised at the calls they count.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) submits: AtomicU64,
    pub(crate) dispatches: AtomicU64,
    pub(crate) maps: AtomicU64,
    pub(crate) bytes_read: AtomicU64,
    pub(crate) buffers_created: AtomicU64,
    pub(crate) buffer_bytes: AtomicU64,
    pub(crate) bind_groups_created: AtomicU64,
    pub(crate) query_sets_created: AtomicU64,
}

impl Tally {
    /// Raises a counter.
    pub(crate) fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Relaxed);
    }

    /// The counters since the device was opened.
    pub(crate) fn counters(&self) -> Counters {
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
