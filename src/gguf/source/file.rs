//! A local file, mapped.

use std::path::Path;

use memmap2::Mmap;

use crate::error::{Error, Result};

/// A mapped file.
#[derive(Debug)]
pub struct File {
    pub(super) name: String,
    map: Mmap,
}

impl File {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let io = |e: std::io::Error| Error::Io { path: name.clone(), reason: e.to_string() };
        let file = std::fs::File::open(path).map_err(io)?;
        if !file.metadata().map_err(io)?.is_file() {
            return Err(Error::Io { path: name, reason: "not a regular file".into() });
        }
        // SAFETY: the map is only read. That nobody cuts the file meanwhile is the documented duty of the caller.
        let map = unsafe { Mmap::map(&file) }.map_err(io)?;
        Ok(Self { name, map })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.map
    }
}
