//! Sources of bytes by offset: memory, a mapped file, HTTP ranges, a browser's Blob.
//!
//! Reading is async because a browser cannot block; natively every future is ready when first polled.

#[cfg(target_arch = "wasm32")]
mod blob;
#[cfg(not(target_arch = "wasm32"))]
mod file;
mod http;

use std::sync::Arc;

use crate::error::{Error, Result};

/// One file of a model. Cloning is cheap: clones share the file.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Source {
    /// Bytes in memory.
    Memory {
        /// Name used in errors.
        name: Arc<str>,
        /// The file.
        bytes: Arc<Vec<u8>>,
    },
    /// A mapped local file.
    #[cfg(not(target_arch = "wasm32"))]
    File(Arc<file::File>),
    /// A file behind an address, read by ranges.
    Http(Arc<http::Http>),
    /// A browser's Blob or File.
    #[cfg(target_arch = "wasm32")]
    Blob(blob::Blob),
}

impl Source {
    /// Bytes in memory; `name` is used in errors.
    pub fn memory(name: &str, bytes: Vec<u8>) -> Self {
        Self::Memory { name: name.into(), bytes: Arc::new(bytes) }
    }

    /// A local file. It must not be changed or cut while it is open.
    ///
    /// # Errors
    /// `Io` where it cannot be opened or mapped.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn file(path: impl AsRef<std::path::Path>) -> Result<Self> {
        Ok(Self::File(Arc::new(file::File::open(path.as_ref())?)))
    }

    /// A file behind an address. Its server must answer range requests.
    ///
    /// # Errors
    /// `RangeIgnored` where the server answers with the whole file, `Http` where it cannot be reached or errs.
    pub async fn http(url: &str) -> Result<Self> {
        Ok(Self::Http(Arc::new(http::Http::open(url).await?)))
    }

    /// A browser's Blob; a `File` is one.
    #[cfg(target_arch = "wasm32")]
    pub fn blob(blob: web_sys::Blob) -> Self {
        Self::Blob(blob::Blob::new(blob))
    }

    /// The path, address or name.
    pub fn name(&self) -> &str {
        match self {
            Self::Memory { name, .. } => name,
            #[cfg(not(target_arch = "wasm32"))]
            Self::File(file) => &file.name,
            Self::Http(http) => &http.url,
            #[cfg(target_arch = "wasm32")]
            Self::Blob(blob) => &blob.name,
        }
    }

    /// Size in bytes.
    #[allow(clippy::len_without_is_empty, reason = "an empty file is no model")]
    pub fn len(&self) -> u64 {
        match self {
            Self::Memory { bytes, .. } => bytes.len() as u64,
            #[cfg(not(target_arch = "wasm32"))]
            Self::File(file) => file.bytes().len() as u64,
            Self::Http(http) => http.len,
            #[cfg(target_arch = "wasm32")]
            Self::Blob(blob) => blob.len(),
        }
    }

    /// All bytes, where they are in memory or mapped.
    pub fn resident(&self) -> Option<&[u8]> {
        match self {
            Self::Memory { bytes, .. } => Some(bytes),
            #[cfg(not(target_arch = "wasm32"))]
            Self::File(file) => Some(file.bytes()),
            _ => None,
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
        if buf.is_empty() {
            return Ok(());
        }
        // The range is inside the file, so inside memory where the file is: the cast keeps the value.
        let start = offset as usize;
        match self {
            Self::Memory { bytes, .. } => buf.copy_from_slice(&bytes[start..start + buf.len()]),
            #[cfg(not(target_arch = "wasm32"))]
            Self::File(file) => buf.copy_from_slice(&file.bytes()[start..start + buf.len()]),
            Self::Http(http) => http.read_into(offset, buf).await?,
            #[cfg(target_arch = "wasm32")]
            Self::Blob(blob) => blob.read_into(offset, buf).await?,
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
            Self::Http(_) => Self::http(name).await,
            _ => Err(Error::Io { path: name.into(), reason: "a further file of this model, not given".into() }),
        }
    }
}

/// A JavaScript exception's text.
#[cfg(target_arch = "wasm32")]
fn js_reason(exception: &wasm_bindgen::JsValue) -> String {
    use wasm_bindgen::JsCast;
    match exception.dyn_ref::<js_sys::Error>() {
        Some(error) => String::from(error.message()),
        None => format!("{exception:?}"),
    }
}
