//! The ring of decode results: a word a row and step (token id and status), a staging buffer a slot, one slot a burst in flight.

use super::driver::{Buffer, Submission, Usage};
use std::sync::{Arc, Mutex, MutexGuard};

use super::buffers::Allocator;
use super::device::Gpu;
use super::readback::Reading;
use crate::engine::backend::{Readback, RingCounters, RingSize};
use crate::error::{Error, Result};

/// Where the bursts in flight leave their results.
pub(crate) struct Ring {
    gpu: Gpu,
    size: RingSize,
    /// Rows of a step at most.
    rows: usize,
    /// `[slots, steps * rows]` words.
    words: Buffer,
    staging: Vec<Buffer>,
    /// The slot handed out next.
    next: usize,
    shared: Arc<Mutex<Shared>>,
}

/// What slots tell the ring when they are let go.
#[derive(Default)]
struct Shared {
    in_flight: Vec<bool>,
    counters: RingCounters,
}

fn check(size: RingSize, rows: usize, max_binding: u64) -> Result<()> {
    size.check()?;
    if words_bytes(size, rows) > max_binding {
        let found = format!("{} slots of {} steps", size.slots, size.steps);
        return Err(Error::BadOption { option: "ring", found, expected: "no more bytes than the device can bind" });
    }
    Ok(())
}

/// Bytes of the words of a ring whose steps have at most `rows` rows.
fn words_bytes(size: RingSize, rows: usize) -> u64 {
    (size.slots * size.steps * rows * 4) as u64
}

impl Ring {
    /// A ring with nothing in flight, for steps of at most `rows` rows.
    ///
    /// # Errors
    /// `BadOption` where a size is outside its range or exceeds what the device can bind.
    pub(crate) fn new(gpu: &Gpu, allocator: &mut Allocator, size: RingSize, rows: usize) -> Result<Self> {
        check(size, rows, gpu.max_binding())?;
        let bytes = (size.steps * rows * 4) as u64;
        let staging = (0..size.slots).map(|_| allocator.buffer("ring staging", bytes, Usage::Staging));
        let shared = Shared { in_flight: vec![false; size.slots], counters: RingCounters::default() };
        Ok(Ring {
            gpu: gpu.clone(),
            size,
            rows,
            staging: staging.collect(),
            words: allocator.buffer("ring", words_bytes(size, rows), Usage::Storage),
            next: 0,
            shared: Arc::new(Mutex::new(shared)),
        })
    }

    /// Makes the ring have `size`; returns whether it had to be made anew, which loses what is in flight.
    ///
    /// # Errors
    /// Those of [`Ring::new`], and `OutOfDeviceMemory`; the ring is then as it was.
    pub(crate) fn ensure(&mut self, size: RingSize) -> Result<bool> {
        if self.size == size {
            return Ok(false);
        }
        let mut allocator = Allocator::new(&self.gpu);
        let ring = Ring::new(&self.gpu, &mut allocator, size, self.rows)?;
        allocator.check()?;
        let mut counters = self.counters();
        counters.reallocations += 1;
        lock(&ring.shared).counters = counters;
        *self = ring;
        Ok(true)
    }

    /// Words of all slots.
    pub(crate) fn words(&self) -> &Buffer {
        &self.words
    }

    pub(crate) fn size(&self) -> RingSize {
        self.size
    }

    pub(crate) fn counters(&self) -> RingCounters {
        lock(&self.shared).counters
    }

    /// Fails where the next slot still is in flight.
    ///
    /// # Errors
    /// `RingFull`.
    pub(crate) fn check_free(&self) -> Result<()> {
        match lock(&self.shared).in_flight[self.next] {
            true => Err(Error::RingFull { slots: self.size.slots }),
            false => Ok(()),
        }
    }

    /// Hands out the next slot; it is in flight until it is dropped.
    ///
    /// # Errors
    /// `RingFull` where the slot still is in flight.
    pub(crate) fn acquire(&mut self) -> Result<Slot> {
        self.check_free()?;
        let mut shared = lock(&self.shared);
        let index = self.next;
        shared.in_flight[index] = true;
        shared.counters.acquisitions += 1;
        if shared.counters.acquisitions > self.size.slots as u64 {
            shared.counters.reuses += 1;
        }
        drop(shared);
        self.next = (index + 1) % self.size.slots;
        let words = self.size.steps * self.rows;
        Ok(Slot { index, words, staging: self.staging[index].clone(), shared: self.shared.clone() })
    }
}

/// The place of one burst's results.
pub(crate) struct Slot {
    index: usize,
    /// Words of a slot.
    words: usize,
    staging: Buffer,
    shared: Arc<Mutex<Shared>>,
}

impl Slot {
    /// The ring's word of the burst's first step.
    pub(crate) fn first_word(&self) -> usize {
        self.index * self.words
    }

    /// Where the host reads the words.
    pub(crate) fn staging(&self) -> &Buffer {
        &self.staging
    }

    /// Asks for the first `words` words, which `submission` copies.
    pub(crate) fn read(&self, gpu: &Gpu, words: usize, submission: Submission) -> Result<Reading> {
        Reading::start(gpu, Readback::Tokens, &self.staging, (words * 4) as u64, Some(&submission))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut shared = lock(&self.shared);
        if let Some(in_flight) = shared.in_flight.get_mut(self.index) {
            *in_flight = false;
        }
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(|e| e.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_checked_against_ranges_and_the_device() {
        let size = |slots, steps| RingSize { slots, steps };
        let cases = [
            (size(1, 1), 4, None),
            (size(16, 256), 1 << 30, None),
            (size(0, 1), 1 << 30, Some("ring slots")),
            (size(17, 1), 1 << 30, Some("ring slots")),
            (size(1, 0), 1 << 30, Some("ring steps")),
            (size(1, 257), 1 << 30, Some("ring steps")),
            (size(4, 64), 1023, Some("ring")),
        ];
        for (size, max_binding, wanted) in cases {
            let found = match check(size, 1, max_binding) {
                Err(Error::BadOption { option, .. }) => Some(option),
                _ => None,
            };
            assert_eq!(found, wanted, "{size:?} of {max_binding} bytes");
        }
    }
}
