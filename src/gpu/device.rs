//! An open device: its driver, what may be read back from it, how its errors surface.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use super::driver::{AdapterSummary, Driver, DriverInfo};
use super::kernels::MatMulForm;
use super::tally::Tally;
use super::webgpu::{ShaderPatch, WebGpu, default_adapter, named_adapter};
use crate::engine::backend::Readback;
use crate::error::{Error, Result};

/// A device with its queue, compiled kernels and counters. Clones share one device.
#[derive(Debug, Clone)]
pub struct Gpu {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    driver: Box<dyn Driver>,
    /// The readbacks that are allowed; `None` allows all.
    readbacks: Mutex<Option<Vec<Readback>>>,
    /// Bits of the milliseconds that results are held back.
    readback_delay: AtomicU64,
}

impl Gpu {
    /// A device behind a driver of another kind.
    pub fn new(driver: impl Driver + 'static) -> Self {
        let (readbacks, readback_delay) = (Mutex::default(), AtomicU64::default());
        Gpu { inner: Arc::new(Inner { driver: Box::new(driver), readbacks, readback_delay }) }
    }

    /// Opens a WebGPU adapter: the first whose name contains `name` (any case), or the platform's choice.
    ///
    /// # Errors
    /// `NoAdapter` where there is none or none of that name, `Device` where the device is refused.
    pub async fn open(name: Option<&str>) -> Result<Self> {
        let adapter = match name {
            Some(name) => named_adapter(name).await?,
            None => default_adapter().await?,
        };
        Ok(Gpu::new(WebGpu::open(&adapter, None).await?))
    }

    /// Opens the platform's choice with one kernel's text changed: how tests break a kernel on purpose.
    ///
    /// # Errors
    /// Those of [`Gpu::open`], and `BadOption` where no kernel has the text.
    pub async fn open_patched(patch: ShaderPatch) -> Result<Self> {
        patch.check()?;
        Ok(Gpu::new(WebGpu::open(&default_adapter().await?, Some(patch)).await?))
    }

    pub(crate) fn driver(&self) -> &dyn Driver {
        &*self.inner.driver
    }

    /// What the device is and can do.
    pub fn info(&self) -> &DriverInfo {
        self.driver().info()
    }

    /// The adapter.
    pub fn adapter(&self) -> &AdapterSummary {
        &self.info().adapter
    }

    /// Whether the adapter computes on the processor.
    pub fn is_software(&self) -> bool {
        self.info().is_software
    }

    /// How matmuls spread their work.
    pub(crate) fn matmul_form(&self) -> MatMulForm {
        self.info().matmul_forms[0]
    }

    pub(crate) fn tally(&self) -> &Tally {
        self.driver().tally()
    }

    /// Bytes one storage binding may have.
    pub(crate) fn max_binding(&self) -> u64 {
        self.info().max_binding
    }

    /// Makes every readback an error whose purpose is not among `allowed`; `None` allows all.
    pub fn restrict_readbacks(&self, allowed: Option<Vec<Readback>>) {
        *self.inner.readbacks.lock().unwrap_or_else(|e| e.into_inner()) = allowed;
    }

    /// Holds every result back for `milliseconds` after the device has it, as browsers do that look for results rarely: for measuring what
    /// that costs.
    pub fn delay_readbacks(&self, milliseconds: f64) {
        self.inner.readback_delay.store(milliseconds.to_bits(), Relaxed);
        self.driver().watch_completions();
    }

    pub(crate) fn readback_delay_ms(&self) -> f64 {
        f64::from_bits(self.inner.readback_delay.load(Relaxed))
    }

    pub(crate) fn check_readback(&self, purpose: Readback) -> Result<()> {
        let allowed = self.inner.readbacks.lock().unwrap_or_else(|e| e.into_inner());
        match allowed.as_ref() {
            Some(allowed) if !allowed.contains(&purpose) => {
                Err(Error::UnexpectedReadback { purpose: format!("{purpose:?}").to_lowercase() })
            }
            _ => Ok(()),
        }
    }

    /// Fails where the device was lost or reported an error outside any scope.
    pub(crate) fn check(&self) -> Result<()> {
        match self.driver().failure() {
            Some(reason) => Err(Error::Device { reason }),
            None => Ok(()),
        }
    }
}

/// Waits.
pub(crate) async fn pause(milliseconds: u32) {
    #[cfg(target_arch = "wasm32")]
    {
        use wasm_bindgen::{JsCast, JsValue};
        let promise = js_sys::Promise::new(&mut |resolve, _| {
            let global = js_sys::global();
            let timer = js_sys::Reflect::get(&global, &"setTimeout".into());
            if let Ok(timer) = timer.and_then(|timer| timer.dyn_into::<js_sys::Function>()) {
                // Where it throws, the promise is dropped with the page.
                let _ = timer.call2(&global, &resolve, &JsValue::from(milliseconds));
            }
        });
        let _ = wasm_bindgen_futures::JsFuture::from(promise).await;
    }
    #[cfg(not(target_arch = "wasm32"))]
    std::thread::sleep(std::time::Duration::from_millis(milliseconds.into()));
}
