//! A browser's Blob: a file the user picked or dropped, or one in the origin's private file system.

use js_sys::Uint8Array;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;

use super::js_reason;
use crate::error::{Error, Result};

/// A Blob and its name. Clones share the bytes.
#[derive(Debug, Clone)]
pub struct Blob {
    pub(super) name: String,
    blob: web_sys::Blob,
}

impl Blob {
    /// A `File` brings its own name.
    pub(super) fn new(blob: web_sys::Blob) -> Self {
        let name = blob.dyn_ref::<web_sys::File>().map_or_else(|| "blob".into(), web_sys::File::name);
        Self { name, blob }
    }

    pub(super) fn len(&self) -> u64 {
        self.blob.size() as u64
    }

    /// Fills `buf` from `offset` on; both are inside the file.
    pub(super) async fn read_into(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let failed = |e: JsValue| Error::Io { path: self.name.clone(), reason: js_reason(&e) };
        let end = offset + buf.len() as u64;
        let part = self.blob.slice_with_f64_and_f64(offset as f64, end as f64).map_err(failed)?;
        let bytes = Uint8Array::new(&JsFuture::from(part.array_buffer()).await.map_err(failed)?);
        if bytes.length() as usize != buf.len() {
            let reason = format!("{} bytes came at offset {offset}, expected {}", bytes.length(), buf.len());
            return Err(Error::Io { path: self.name.clone(), reason });
        }
        bytes.copy_to(buf);
        Ok(())
    }
}
