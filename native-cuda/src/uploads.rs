//! The way from the host to the device: through pinned memory, in the order of the stream, without waiting for it.

use blueshift::{Error, Result};

use crate::memory::{Memory, Place, copy};
use crate::stream::{Event, Stream};

/// Bytes of a chunk of pinned memory, and how many there are at most.
const CHUNK_BYTES: usize = 4 << 20;
const MAX_CHUNKS: usize = 4;

/// Pinned memory that writes go through.
#[derive(Debug)]
struct Chunk {
    memory: Memory,
    /// Behind the last copy from it.
    used: Event,
}

/// A ring of chunks, each used again when the device has copied what it held.
#[derive(Debug)]
pub(crate) struct Uploads {
    stream: Stream,
    chunks: Vec<Chunk>,
    /// The chunk in use and its bytes that are.
    current: usize,
    filled: usize,
}

impl Uploads {
    pub(crate) fn new(stream: &Stream) -> Self {
        Uploads { stream: stream.clone(), chunks: Vec::new(), current: 0, filled: CHUNK_BYTES }
    }

    /// Writes `data` to a buffer of the device, behind all that was submitted before.
    pub(crate) fn write(&mut self, to: &Memory, offset: u64, data: &[u8]) -> Result<()> {
        let mut offset = offset;
        let mut rest = data;
        while !rest.is_empty() {
            if self.filled == CHUNK_BYTES {
                self.next_chunk()?;
            }
            let (part, later) = rest.split_at(rest.len().min(CHUNK_BYTES - self.filled));
            let to = to.at(offset, part.len() as u64)?;
            let chunk = &self.chunks[self.current];
            let from = chunk.memory.at(self.filled as u64, part.len() as u64)?;
            if let Place::Host(at) = from {
                // SAFETY: the place has that many bytes, and the device has copied what they held before.
                unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), at.as_ptr(), part.len()) };
            }
            copy(&self.stream, from, to, part.len() as u64)?;
            self.filled = (self.filled + part.len()).next_multiple_of(16).min(CHUNK_BYTES);
            offset += part.len() as u64;
            rest = later;
        }
        Ok(())
    }

    /// Goes on in the next chunk: a new one as long as there may be more, else the oldest once it was copied.
    fn next_chunk(&mut self) -> Result<()> {
        if let Some(full) = self.chunks.get(self.current) {
            full.used.record()?;
        }
        if self.chunks.len() < MAX_CHUNKS {
            let memory = Memory::on_host(&self.stream, CHUNK_BYTES as u64).map_err(|reason| {
                Error::OutOfDeviceMemory { what: "pinned memory".into(), bytes: CHUNK_BYTES as u64, reason }
            })?;
            self.chunks.push(Chunk { memory, used: Event::now(&self.stream)? });
            self.current = self.chunks.len() - 1;
        } else {
            self.current = (self.current + 1) % MAX_CHUNKS;
            self.chunks[self.current].used.wait()?;
        }
        self.filled = 0;
        Ok(())
    }
}
