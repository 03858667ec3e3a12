//! A checked walk over the first bytes of a file.

use crate::error::Error;

/// Why parsing stopped before the header's end.
pub(super) enum Stop {
    /// The header goes on: at least this many bytes of the file are needed.
    NeedMore(u64),
    /// The file cannot be used.
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

pub(super) type Parse<T> = Result<T, Stop>;

/// Reads little-endian values from `bytes`, a prefix of a file of `file_len` bytes.
pub(super) struct Cursor<'a> {
    name: &'a str,
    bytes: &'a [u8],
    file_len: u64,
    pos: usize,
    /// Section named in errors.
    pub(super) section: &'static str,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(name: &'a str, bytes: &'a [u8], file_len: u64) -> Self {
        Self { name, bytes, file_len, pos: 0, section: "header" }
    }

    /// Byte offset of the next value.
    pub(super) fn pos(&self) -> usize {
        self.pos
    }

    pub(super) fn name(&self) -> &'a str {
        self.name
    }

    pub(super) fn file_len(&self) -> u64 {
        self.file_len
    }

    /// The bytes from `start` to the cursor.
    pub(super) fn since(&self, start: usize) -> &'a [u8] {
        &self.bytes[start..self.pos]
    }

    /// A `Malformed` error at byte `offset`.
    pub(super) fn malformed(&self, offset: usize, reason: impl Into<String>) -> Error {
        Error::Malformed { name: self.name.into(), section: self.section, offset: offset as u64, reason: reason.into() }
    }

    /// The next `n` bytes.
    pub(super) fn take(&mut self, n: u64) -> Parse<&'a [u8]> {
        let left = self.file_len - self.pos as u64;
        if n > left {
            return Err(self.malformed(self.pos, format!("the file ends after {left} bytes, expected {n}")).into());
        }
        // `n` is at most the file's size, so the sum cannot overflow.
        let end = self.pos as u64 + n;
        if end > self.bytes.len() as u64 {
            return Err(Stop::NeedMore(end));
        }
        let start = self.pos;
        self.pos = end as usize;
        Ok(&self.bytes[start..self.pos])
    }

    fn array<const N: usize>(&mut self) -> Parse<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N as u64)?);
        Ok(out)
    }

    pub(super) fn u8(&mut self) -> Parse<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn u16(&mut self) -> Parse<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Parse<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Parse<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A count of things that take at least `min_bytes` each, bounded by `limit` and by the bytes left.
    pub(super) fn count(&mut self, what: &str, min_bytes: u64, limit: u64) -> Parse<usize> {
        let at = self.pos;
        let n = self.u64()?;
        let fit = (self.file_len - self.pos as u64) / min_bytes;
        if n > limit.min(fit) {
            let reason = if n > fit {
                format!("{n} {what}, but the rest of the file has room for {fit}")
            } else {
                format!("{n} {what}, expected at most {limit}")
            };
            return Err(self.malformed(at, reason).into());
        }
        Ok(n as usize)
    }

    /// A string's bytes: a length of 64 bits, then the bytes.
    pub(super) fn byte_string(&mut self) -> Parse<&'a [u8]> {
        let n = self.u64()?;
        self.take(n)
    }

    /// A name: UTF-8 of 1 to `max` bytes.
    pub(super) fn identifier(&mut self, what: &str, max: usize) -> Parse<&'a str> {
        let at = self.pos;
        let n = self.u64()?;
        if n == 0 || n > max as u64 {
            return Err(self.malformed(at, format!("{what} of {n} bytes, expected 1 to {max}")).into());
        }
        let bytes = self.take(n)?;
        std::str::from_utf8(bytes)
            .map_err(|_| self.malformed(at, format!("{what} {:?} is not UTF-8", String::from_utf8_lossy(bytes))).into())
    }
}
