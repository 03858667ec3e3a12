//! Buffers on the host that no kernel leaves unseen.

use std::ptr::NonNull;

/// Bytes that end where a page begins that nothing may touch, and begin as closely behind another: a kernel that reads or writes past its
/// buffer ends the process.
#[derive(Debug)]
pub(super) struct Memory {
    mapping: NonNull<u8>,
    mapped: usize,
    start: NonNull<u8>,
    /// Bytes of the buffer.
    pub(super) bytes: usize,
}

// SAFETY: the memory is the buffer's own; who reads and writes it is up to the emulator, which does one thing after another.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Zeroed memory of `bytes`, a multiple of 16, which is its alignment, too.
    ///
    /// # Errors
    /// What the operating system said.
    pub(super) fn zeroed(bytes: usize) -> std::io::Result<Self> {
        // SAFETY: asks for a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let inner = bytes.next_multiple_of(page);
        let mapped = inner + 2 * page;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping, whose place the system chooses.
        let mapping = unsafe { libc::mmap(std::ptr::null_mut(), mapped, libc::PROT_NONE, flags, -1, 0) };
        if mapping == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        let mapping = NonNull::new(mapping.cast::<u8>()).ok_or_else(std::io::Error::last_os_error)?;
        // SAFETY: both lie inside the mapping.
        let (first, start) = unsafe { (mapping.add(page), mapping.add(page + inner - bytes)) };
        let memory = Memory { mapping, mapped, start, bytes };
        // SAFETY: the pages are the mapping's.
        match unsafe { libc::mprotect(first.as_ptr().cast(), inner, libc::PROT_READ | libc::PROT_WRITE) } {
            0 => Ok(memory),
            _ => Err(std::io::Error::last_os_error()),
        }
    }

    /// Where `len` bytes at `offset` begin; `None` where they are not all inside.
    pub(super) fn at(&self, offset: u64, len: u64) -> Option<NonNull<u8>> {
        let end = offset.checked_add(len)?;
        // SAFETY: the offset is inside or at the end of the buffer.
        (end <= self.bytes as u64).then(|| unsafe { self.start.add(offset as usize) })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's and nothing uses it any more. A failure leaves nothing to be done.
        unsafe { libc::munmap(self.mapping.as_ptr().cast(), self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_zeroed_aligned_and_bounded() {
        for bytes in [16, 4080, 4096, 100_000] {
            let memory = Memory::zeroed(bytes).unwrap();
            let start = memory.at(0, bytes as u64).unwrap();
            assert_eq!(start.as_ptr() as usize % 16, 0);
            // SAFETY: the buffer has that many bytes.
            let all = unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), bytes) };
            assert!(all.iter().all(|byte| *byte == 0));
            all.fill(1);
            assert!(memory.at(4, bytes as u64).is_none() && memory.at(u64::MAX, 1).is_none());
        }
    }
}
