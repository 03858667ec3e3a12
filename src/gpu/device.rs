//! The adapter and the device: how they are asked for, what they allow, how their errors surface.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use super::pipelines::{MatMulForm, Pipelines, ShaderPatch};
use super::tally::Tally;
use crate::engine::backend::Readback;
use crate::error::{Error, Result};

/// Largest part a buffer of weights or cache is split into, whatever the device allows.
const MAX_PART: u64 = (1 << 31) - 4096;
/// What timing needs, asked for where the adapter has it; nothing else depends on it.
const TIMESTAMPS: wgpu::Features = wgpu::Features::TIMESTAMP_QUERY.union(wgpu::Features::TIMESTAMP_QUERY_INSIDE_PASSES);
/// Times `request_adapter` is asked before giving up: a browser's GPU process may still be starting.
const ADAPTER_TRIES: u32 = if cfg!(target_arch = "wasm32") { 6 } else { 1 };

/// An adapter, for listings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdapterSummary {
    /// The adapter's name.
    pub name: String,
    /// Graphics API, for example `vulkan`.
    pub api: String,
    /// Kind, for example `DiscreteGpu` or `Cpu`.
    pub kind: String,
    /// Driver name and version.
    pub driver: String,
}

impl AdapterSummary {
    fn of(adapter: &wgpu::Adapter) -> Self {
        let info = adapter.get_info();
        AdapterSummary {
            name: info.name,
            api: info.backend.to_str().into(),
            kind: format!("{:?}", info.device_type),
            driver: format!("{} {}", info.driver, info.driver_info).trim().into(),
        }
    }
}

/// The process's way to the graphics API. There is one: drivers have crashed where several came and went side by side.
#[cfg(not(target_arch = "wasm32"))]
fn instance() -> &'static wgpu::Instance {
    static INSTANCE: std::sync::OnceLock<wgpu::Instance> = std::sync::OnceLock::new();
    INSTANCE.get_or_init(wgpu::Instance::default)
}

/// The page's way to WebGPU.
#[cfg(target_arch = "wasm32")]
fn instance() -> wgpu::Instance {
    wgpu::Instance::default()
}

/// The adapters of this machine; in a browser the one it offers.
pub async fn list_adapters() -> Vec<AdapterSummary> {
    instance().enumerate_adapters(wgpu::Backends::all()).await.iter().map(AdapterSummary::of).collect()
}

/// A device with its queue, compiled pipelines and counters. Clones share one device.
#[derive(Debug, Clone)]
pub struct Gpu {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    device: wgpu::Device,
    queue: wgpu::Queue,
    summary: AdapterSummary,
    is_software: bool,
    pipelines: Pipelines,
    tally: Tally,
    /// The first error that no scope caught, or why the device was lost.
    failure: Arc<Mutex<Option<String>>>,
    /// The readbacks that are allowed; `None` allows all.
    readbacks: Mutex<Option<Vec<Readback>>>,
    /// Bits of the milliseconds that results are held back.
    readback_delay: AtomicU64,
}

impl Gpu {
    /// Opens an adapter: the first whose name contains `name` (any case), or the platform's choice.
    ///
    /// # Errors
    /// `NoAdapter` where there is none or none of that name, `Device` where the device is refused.
    pub async fn open(name: Option<&str>) -> Result<Self> {
        let adapter = match name {
            Some(name) => named_adapter(name).await?,
            None => default_adapter().await?,
        };
        Self::with_adapter(&adapter, None).await
    }

    /// Opens the platform's choice with one kernel's text changed: how tests break a kernel on purpose.
    ///
    /// # Errors
    /// Those of [`Gpu::open`], and `BadOption` where no kernel has the text.
    pub async fn open_patched(patch: ShaderPatch) -> Result<Self> {
        patch.check()?;
        Self::with_adapter(&default_adapter().await?, Some(patch)).await
    }

    async fn with_adapter(adapter: &wgpu::Adapter, patch: Option<ShaderPatch>) -> Result<Self> {
        let (device, queue) = adapter
            .request_device(&wgpu::DeviceDescriptor {
                label: Some("blueshift"),
                required_features: adapter.features() & TIMESTAMPS,
                required_limits: required_limits(&adapter.limits()),
                ..Default::default()
            })
            .await
            .map_err(|e| Error::Device { reason: format!("the device was refused: {e}") })?;
        let failure = Arc::new(Mutex::new(None));
        watch(&device, &failure);
        let inner = Inner {
            summary: AdapterSummary::of(adapter),
            is_software: adapter.get_info().device_type == wgpu::DeviceType::Cpu,
            pipelines: Pipelines::new(patch),
            tally: Tally::default(),
            device,
            queue,
            failure,
            readbacks: Mutex::default(),
            readback_delay: AtomicU64::default(),
        };
        Ok(Gpu { inner: Arc::new(inner) })
    }

    /// The adapter.
    pub fn adapter(&self) -> &AdapterSummary {
        &self.inner.summary
    }

    /// Whether the adapter computes on the processor.
    pub fn is_software(&self) -> bool {
        self.inner.is_software
    }

    /// How matmuls spread their work: on a processor lanes are dear and barriers dearer.
    pub(crate) fn matmul_form(&self) -> MatMulForm {
        if self.is_software() { MatMulForm::Serial } else { MatMulForm::Lanes }
    }

    pub(crate) fn device(&self) -> &wgpu::Device {
        &self.inner.device
    }

    pub(crate) fn queue(&self) -> &wgpu::Queue {
        &self.inner.queue
    }

    pub(crate) fn pipelines(&self) -> &Pipelines {
        &self.inner.pipelines
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.inner.tally
    }

    /// Bytes one storage binding may have.
    pub(crate) fn max_binding(&self) -> u64 {
        let limits = self.device().limits();
        limits.max_storage_buffer_binding_size.min(limits.max_buffer_size).min(MAX_PART) & !0xff
    }

    /// Makes every readback an error whose purpose is not among `allowed`; `None` allows all.
    pub fn restrict_readbacks(&self, allowed: Option<Vec<Readback>>) {
        *self.inner.readbacks.lock().unwrap_or_else(|e| e.into_inner()) = allowed;
    }

    /// Holds every result back for `milliseconds` after the device has it, as browsers do that look for results rarely: for measuring what
    /// that costs.
    pub fn delay_readbacks(&self, milliseconds: f64) {
        self.inner.readback_delay.store(milliseconds.to_bits(), Relaxed);
        #[cfg(not(target_arch = "wasm32"))]
        watch_completions(&self.inner);
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
        let failure = self.inner.failure.lock().unwrap_or_else(|e| e.into_inner());
        match failure.as_ref() {
            Some(reason) => Err(Error::Device { reason: reason.clone() }),
            None => Ok(()),
        }
    }
}

async fn named_adapter(name: &str) -> Result<wgpu::Adapter> {
    let adapters = instance().enumerate_adapters(wgpu::Backends::all()).await;
    let names: Vec<String> = adapters.iter().map(|a| a.get_info().name).collect();
    let wanted = name.to_lowercase();
    adapters.into_iter().find(|a| a.get_info().name.to_lowercase().contains(&wanted)).ok_or_else(|| Error::NoAdapter {
        reason: format!("no adapter's name contains {name:?}; found: {}", names.join(", ")),
    })
}

async fn default_adapter() -> Result<wgpu::Adapter> {
    let options = wgpu::RequestAdapterOptions {
        power_preference: if cfg!(target_arch = "wasm32") {
            wgpu::PowerPreference::None
        } else {
            wgpu::PowerPreference::HighPerformance
        },
        ..Default::default()
    };
    let mut reason = String::new();
    for attempt in 0..ADAPTER_TRIES {
        if attempt > 0 {
            pause(100 << attempt).await;
        }
        match instance().request_adapter(&options).await {
            Ok(adapter) => return Ok(adapter),
            Err(e) => reason = e.to_string(),
        }
    }
    Err(Error::NoAdapter { reason })
}

/// Notices results when they are there, also while nobody waits for them, as long as the device is in use.
#[cfg(not(target_arch = "wasm32"))]
fn watch_completions(inner: &Arc<Inner>) {
    let inner = Arc::downgrade(inner);
    std::thread::spawn(move || {
        while let Some(inner) = inner.upgrade() {
            // A lost device is noticed by those who wait for it.
            let _ = inner.device.poll(wgpu::PollType::Poll);
            drop(inner);
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
    });
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

/// Small limits for what the kernels use, the adapter's own for sizes of buffers.
fn required_limits(adapter: &wgpu::Limits) -> wgpu::Limits {
    wgpu::Limits {
        max_storage_buffer_binding_size: adapter.max_storage_buffer_binding_size,
        max_buffer_size: adapter.max_buffer_size,
        ..wgpu::Limits::default().or_worse_values_from(adapter)
    }
}

/// Remembers the first failure in `failure`.
fn watch(device: &wgpu::Device, failure: &Arc<Mutex<Option<String>>>) {
    let note = |failure: &Mutex<Option<String>>, reason: String| {
        failure.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert(reason);
    };
    let lost = failure.clone();
    device.set_device_lost_callback(move |reason, message| {
        // Dropping the device is no failure.
        if reason != wgpu::DeviceLostReason::Destroyed {
            note(&lost, format!("the device was lost: {message}"));
        }
    });
    let uncaptured = failure.clone();
    device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| note(&uncaptured, error.to_string())));
}
