//! Range requests natively. They block, so the futures are ready when first polled.

use std::io::Read;
use std::time::Duration;

use super::fault;
use crate::error::Result;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

/// Sends requests over kept connections.
#[derive(Debug)]
pub(super) struct Client(ureq::Agent);

/// A response whose body has not been read.
pub(super) struct Response(ureq::http::Response<ureq::Body>);

impl Client {
    pub(super) fn new() -> Self {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_recv_response(Some(RESPONSE_TIMEOUT))
            .timeout_per_read(Some(RESPONSE_TIMEOUT));
        Self(config.build().new_agent())
    }

    /// Asks for the bytes `first..=last`.
    pub(super) async fn get(&self, url: &str, first: u64, last: u64) -> Result<Response> {
        let request = self.0.get(url).header("Range", format!("bytes={first}-{last}"));
        request.call().map(Response).map_err(|e| fault(url, e.to_string()))
    }

    /// The size of the file, where a range response does not tell it.
    pub(super) async fn size(&self, url: &str) -> Result<u64> {
        Err(fault(url, "the response has status 206 but no Content-Range"))
    }
}

impl Response {
    pub(super) fn status(&self) -> u16 {
        self.0.status().as_u16()
    }

    pub(super) fn content_range(&self) -> Option<String> {
        Some(self.0.headers().get("content-range")?.to_str().ok()?.into())
    }

    /// Fills `buf` with the body.
    pub(super) async fn body(mut self, url: &str, buf: &mut [u8]) -> Result<()> {
        let len = buf.len();
        let reason = |e: std::io::Error| fault(url, format!("the body of {len} bytes did not arrive: {e}"));
        self.0.body_mut().as_reader().read_exact(buf).map_err(reason)
    }
}
