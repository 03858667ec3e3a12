//! The adapter: how it is asked for, what it allows.

use crate::error::{Error, Result};
use crate::gpu::device::pause;
use crate::gpu::driver::AdapterSummary;

/// Times `request_adapter` is asked before giving up: a browser's GPU process may still be starting.
const ADAPTER_TRIES: u32 = if cfg!(target_arch = "wasm32") { 6 } else { 1 };

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

/// What listings say of an adapter.
pub(super) fn summary(adapter: &wgpu::Adapter) -> AdapterSummary {
    let info = adapter.get_info();
    AdapterSummary {
        name: info.name,
        api: info.backend.to_str().into(),
        kind: format!("{:?}", info.device_type),
        driver: format!("{} {}", info.driver, info.driver_info).trim().into(),
    }
}

/// The adapters of this machine; in a browser the one it offers.
pub async fn list_adapters() -> Vec<AdapterSummary> {
    instance().enumerate_adapters(wgpu::Backends::all()).await.iter().map(summary).collect()
}

/// The first adapter whose name contains `name`, in any case.
pub(crate) async fn named_adapter(name: &str) -> Result<wgpu::Adapter> {
    let adapters = instance().enumerate_adapters(wgpu::Backends::all()).await;
    let names: Vec<String> = adapters.iter().map(|a| a.get_info().name).collect();
    let wanted = name.to_lowercase();
    adapters.into_iter().find(|a| a.get_info().name.to_lowercase().contains(&wanted)).ok_or_else(|| Error::NoAdapter {
        reason: format!("no adapter's name contains {name:?}; found: {}", names.join(", ")),
    })
}

/// The platform's choice.
pub(crate) async fn default_adapter() -> Result<wgpu::Adapter> {
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

/// Small limits for what the kernels use, the adapter's own for sizes of buffers.
pub(super) fn required_limits(adapter: &wgpu::Limits) -> wgpu::Limits {
    wgpu::Limits {
        max_storage_buffer_binding_size: adapter.max_storage_buffer_binding_size,
        max_buffer_size: adapter.max_buffer_size,
        ..wgpu::Limits::default().or_worse_values_from(adapter)
    }
}
