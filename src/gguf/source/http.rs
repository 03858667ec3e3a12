//! A file read by HTTP range requests.
//!
//! The transport (`http_native.rs`, `http_web.rs`) sends one request and hands out status, headers and body; what they
//! must be is checked here.

#[cfg(not(target_arch = "wasm32"))]
#[path = "http_native.rs"]
mod transport;
#[cfg(target_arch = "wasm32")]
#[path = "http_web.rs"]
mod transport;

use transport::{Client, Response};

use crate::error::{Error, Result};

/// Bytes the first request asks for; kept, since a header begins with them.
const HEAD_BYTES: u64 = 1 << 20;
/// Tries of a range that fails on the way.
const ATTEMPTS: usize = 3;

/// A file behind an address.
#[derive(Debug)]
pub struct Http {
    pub(super) url: String,
    pub(super) len: u64,
    /// The file's first `HEAD_BYTES` bytes, or all of it.
    head: Vec<u8>,
    client: Client,
}

impl Http {
    /// Asks for the first bytes, and so for the size.
    pub(super) async fn open(url: &str) -> Result<Self> {
        let client = Client::new();
        let response = client.get(url, 0, HEAD_BYTES - 1).await?;
        check_status(url, response.status())?;
        let len = match response.content_range() {
            Some(range) => size_of(url, &range)?,
            None => client.size(url).await?,
        };
        let mut head = vec![0; len.min(HEAD_BYTES) as usize];
        receive(response, url, 0, len, &mut head).await?;
        Ok(Self { url: url.into(), len, head, client })
    }

    /// Fills `buf` from `offset` on; both are inside the file.
    pub(super) async fn read_into(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let kept = self.head.len() as u64;
        if offset + (buf.len() as u64) <= kept {
            let start = offset as usize;
            buf.copy_from_slice(&self.head[start..start + buf.len()]);
            return Ok(());
        }
        let mut tries = 1;
        loop {
            match self.request(offset, buf).await {
                Err(Error::Http { .. }) if tries < ATTEMPTS => tries += 1,
                result => return result,
            }
        }
    }

    async fn request(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let response = self.client.get(&self.url, offset, offset + buf.len() as u64 - 1).await?;
        check_status(&self.url, response.status())?;
        receive(response, &self.url, offset, self.len, buf).await
    }
}

/// Checks that `response` carries exactly the bytes of `buf`, then reads them.
async fn receive(response: Response, url: &str, offset: u64, len: u64, buf: &mut [u8]) -> Result<()> {
    let expected = format!("bytes {offset}-{}/{len}", offset + (buf.len() as u64).saturating_sub(1));
    match response.content_range() {
        Some(found) if !found.trim().eq_ignore_ascii_case(&expected) => {
            Err(fault(url, format!("Content-Range is {found:?}, expected {expected:?}")))
        }
        _ => response.body(url, buf).await,
    }
}

fn check_status(url: &str, status: u16) -> Result<()> {
    match status {
        206 => Ok(()),
        200 => Err(Error::RangeIgnored { url: url.into(), status }),
        other => Err(fault(url, format!("status {other}, expected 206"))),
    }
}

/// The size of the whole file in `bytes first-last/size`.
fn size_of(url: &str, content_range: &str) -> Result<u64> {
    let size = content_range.rsplit_once('/').and_then(|(_, size)| size.trim().parse().ok());
    size.filter(|size| *size > 0).ok_or_else(|| {
        fault(url, format!("Content-Range is {content_range:?}, expected \"bytes first-last/size\" with the size"))
    })
}

fn fault(url: &str, reason: impl Into<String>) -> Error {
    Error::Http { url: url.into(), reason: reason.into() }
}
