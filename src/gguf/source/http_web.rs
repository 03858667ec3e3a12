//! Range requests with the browser's `fetch`, in a window or a worker.

use js_sys::Uint8Array;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{AbortController, Request, RequestInit, WorkerGlobalScope};

use super::fault;
use crate::error::{Error, Result};
use crate::gguf::source::js_reason;

/// Sends requests.
#[derive(Debug)]
pub(super) struct Client;

/// A response whose body has not been read. Dropping it, or the future that reads it, stops the transfer.
pub(super) struct Response {
    response: web_sys::Response,
    abort: AbortController,
}

impl Drop for Response {
    fn drop(&mut self) {
        self.abort.abort();
    }
}

impl Client {
    pub(super) fn new() -> Self {
        Self
    }

    /// Asks for the bytes `first..=last`.
    pub(super) async fn get(&self, url: &str, first: u64, last: u64) -> Result<Response> {
        let range = format!("bytes={first}-{last}");
        fetch("GET", url, Some(&range)).await.map_err(|e| unreachable(url, &e))
    }

    /// The size of the file, where another origin's server does not expose Content-Range.
    pub(super) async fn size(&self, url: &str) -> Result<u64> {
        let head = fetch("HEAD", url, None).await.map_err(|e| unreachable(url, &e))?;
        let size = head.header("content-length").filter(|_| head.response.ok());
        size.and_then(|size| size.trim().parse().ok()).filter(|size| *size > 0).ok_or_else(|| {
            let reason = "the server hides the file's size; let it send Access-Control-Expose-Headers: Content-Range";
            fault(url, reason)
        })
    }
}

/// A browser does not tell a refused connection from a server that does not admit the page.
fn unreachable(url: &str, exception: &JsValue) -> Error {
    let reason = js_reason(exception);
    fault(url, format!("{reason}: the server cannot be reached, or it does not allow requests from this page's origin"))
}

async fn fetch(method: &str, url: &str, range: Option<&str>) -> Result<Response, JsValue> {
    let abort = AbortController::new()?;
    let init = RequestInit::new();
    init.set_method(method);
    init.set_signal(Some(&abort.signal()));
    let request = Request::new_with_str_and_init(url, &init)?;
    if let Some(range) = range {
        request.headers().set("Range", range)?;
    }
    let global = js_sys::global();
    let promise = match global.dyn_ref::<WorkerGlobalScope>() {
        Some(worker) => worker.fetch_with_request(&request),
        None => global.unchecked_ref::<web_sys::Window>().fetch_with_request(&request),
    };
    let response = JsFuture::from(promise).await?.dyn_into()?;
    Ok(Response { response, abort })
}

impl Response {
    pub(super) fn status(&self) -> u16 {
        self.response.status()
    }

    pub(super) fn content_range(&self) -> Option<String> {
        self.header("content-range")
    }

    fn header(&self, name: &str) -> Option<String> {
        self.response.headers().get(name).ok().flatten()
    }

    /// Fills `buf` with the body.
    pub(super) async fn body(self, url: &str, buf: &mut [u8]) -> Result<()> {
        let failed = |e: JsValue| fault(url, js_reason(&e));
        let promise = self.response.array_buffer().map_err(failed)?;
        let bytes = Uint8Array::new(&JsFuture::from(promise).await.map_err(failed)?);
        if bytes.length() as usize != buf.len() {
            return Err(fault(url, format!("the body has {} bytes, expected {}", bytes.length(), buf.len())));
        }
        bytes.copy_to(buf);
        Ok(())
    }
}
