//! Sources of bytes by offset: memory, a mapped file, HTTP ranges, a browser's Blob.
//!
//! Reading is async because a browser cannot block; natively every future is ready at once.

#[cfg(not(target_arch = "wasm32"))]
mod file;

use std::sync::Arc;

use crate::error::{Error, Result};

/// One file of a model. Cloning is cheap: clones share the file.
#[derive(Debug, Clone)]
pub enum Source {
    /// Bytes in memory.
    Memory {
        /// Name used in errors.
        name: Arc<str>,
        /// The file.
        bytes: Arc<[u8]>,
    },
    /// A mapped local file.
    #[cfg(not(target_arch = "wasm32"))]
    File(Arc<file::File>),
}

impl Source {
    /// Bytes in memory; `name` is used in errors.
    pub fn memory(name: &str, bytes: impl Into<Arc<[u8]>>) -> Self {
        Self::Memory { name: name.into(), bytes: bytes.into() }
    }

    /// A local file. It must not be changed or cut while it is open.
    ///
    /// # Errors
    /// `Io` where it cannot be opened or mapped.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn file(path: impl AsRef<std::path::Path>) -> Result<Self> {
        Ok(Self::File(Arc::new(file::File::open(path.as_ref())?)))
    }

    /// The path, address or name.
    pub fn name(&self) -> &str {
        match self {
            Self::Memory { name, .. } => name,
            #[cfg(not(target_arch = "wasm32"))]
            Self::File(file) => &file.name,
        }
    }

    /// Size in bytes.
    #[allow(clippy::len_without_is_empty, reason = "an empty file is no model")]
    pub fn len(&self) -> u64 {
        match self {
            Self::Memory { bytes, .. } => bytes.len() as u64,
            #[cfg(not(target_arch = "wasm32"))]
            Self::File(file) => file.bytes().len() as u64,
        }
    }

    /// All bytes, where they are in memory or mapped.
    pub fn resident(&self) -> Option<&[u8]> {
        match self {
            Self::Memory { bytes, .. } => Some(bytes),
            #[cfg(not(target_arch = "wasm32"))]
            Self::File(file) => Some(file.bytes()),
        }
    }

    /// Fills `buf` with the bytes from `offset` on.
    ///
    /// # Errors
    /// `OutOfRange` past the end, or the source's own errors.
    pub async fn read_into(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let len = buf.len() as u64;
        if offset.checked_add(len).is_none_or(|end| end > self.len()) {
            return Err(Error::OutOfRange { name: self.name().into(), offset, len, size: self.len() });
        }
        if let Some(all) = self.resident() {
            // Inside the file, so inside memory: the casts keep the values.
            buf.copy_from_slice(&all[offset as usize..offset as usize + buf.len()]);
        }
        Ok(())
    }

    /// Another file of the same model, by its name: a path or an address.
    ///
    /// # Errors
    /// `Io` or `Http` where it cannot be opened; memory and blobs have no neighbours.
    pub(super) async fn sibling(&self, name: &str) -> Result<Self> {
        match self {
            #[cfg(not(target_arch = "wasm32"))]
            Self::File(_) => Self::file(name),
            _ => Err(Error::Io { path: name.into(), reason: "needed, but a file in memory has no neighbours".into() }),
        }
    }
}
