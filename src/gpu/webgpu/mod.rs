//! The WebGPU driver: `wgpu` natively and in browsers.

mod adapter;
mod pipelines;
mod read;
mod recorder;
mod timing;

use std::sync::{Arc, Mutex};

pub use adapter::list_adapters;
pub(crate) use adapter::{default_adapter, named_adapter};
pub use pipelines::ShaderPatch;

use adapter::{required_limits, summary};
use pipelines::Pipelines;
use read::Mapping;
use timing::Pools;

use super::driver::{
    Arrived, Bound, Buffer, Draft, Driver, DriverInfo, Handle, MAX_PART, Recorder, Submission, Timed, Usage, Waiting,
};
use super::kernels::MatMulForm::{Lanes, Serial};
use super::params::SLOT;
use super::tally::Tally;
use crate::error::{Error, Result};

/// What timing needs, asked for where the adapter has it; nothing else depends on it.
const TIMESTAMPS: wgpu::Features = wgpu::Features::TIMESTAMP_QUERY.union(wgpu::Features::TIMESTAMP_QUERY_INSIDE_PASSES);

/// A `wgpu` device with its queue. Clones share one device.
#[derive(Debug, Clone)]
pub(crate) struct WebGpu {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    device: wgpu::Device,
    queue: wgpu::Queue,
    info: DriverInfo,
    pipelines: Pipelines,
    tally: Tally,
    timers: Pools,
    /// The first error that no scope caught, or why the device was lost.
    failure: Arc<Mutex<Option<String>>>,
}

impl WebGpu {
    /// Opens a device; `patch` changes one kernel's text.
    ///
    /// # Errors
    /// `Device` where the device is refused.
    pub(crate) async fn open(adapter: &wgpu::Adapter, patch: Option<ShaderPatch>) -> Result<Self> {
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
        let is_software = adapter.get_info().device_type == wgpu::DeviceType::Cpu;
        let limits = device.limits();
        let info = DriverInfo {
            backend: "wgpu",
            adapter: summary(adapter),
            is_software,
            // On a processor lanes are dear and barriers dearer.
            matmul_forms: if is_software { &[Serial, Lanes] } else { &[Lanes, Serial] },
            max_binding: limits.max_storage_buffer_binding_size.min(limits.max_buffer_size).min(MAX_PART) & !0xff,
            has_timestamps: device.features().contains(wgpu::Features::TIMESTAMP_QUERY),
        };
        let (pipelines, tally, timers) = (Pipelines::new(patch), Tally::default(), Pools::default());
        Ok(WebGpu { inner: Arc::new(Inner { device, queue, info, pipelines, tally, timers, failure }) })
    }

    fn device(&self) -> &wgpu::Device {
        &self.inner.device
    }

    fn queue(&self) -> &wgpu::Queue {
        &self.inner.queue
    }

    /// A buffer whose failure nobody waits for.
    fn plain_buffer(&self, label: &str, size: u64, usage: wgpu::BufferUsages) -> wgpu::Buffer {
        Tally::add(&self.inner.tally.buffers_created, 1);
        Tally::add(&self.inner.tally.buffer_bytes, size);
        let descriptor = wgpu::BufferDescriptor { label: Some(label), size, usage, mapped_at_creation: false };
        self.device().create_buffer(&descriptor)
    }
}

fn usages(usage: Usage) -> wgpu::BufferUsages {
    use wgpu::BufferUsages as U;
    let storage = U::STORAGE | U::COPY_DST | U::COPY_SRC;
    match usage {
        Usage::Storage => storage,
        Usage::State => storage | U::UNIFORM,
        Usage::Uniform => U::UNIFORM | U::COPY_DST,
        Usage::Staging => U::MAP_READ | U::COPY_DST,
    }
}

/// A bound kernel.
#[derive(Debug)]
struct BoundStep {
    pipeline: wgpu::ComputePipeline,
    bind_group: wgpu::BindGroup,
}

impl Driver for WebGpu {
    fn info(&self) -> &DriverInfo {
        &self.inner.info
    }

    fn tally(&self) -> &Tally {
        &self.inner.tally
    }

    fn buffer(&self, label: &str, bytes: u64, usage: Usage) -> (Buffer, Waiting<Option<String>>) {
        let memory = self.device().push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let validation = self.device().push_error_scope(wgpu::ErrorFilter::Validation);
        let buffer = self.plain_buffer(label, bytes, usages(usage));
        let (validation, memory) = (validation.pop(), memory.pop());
        let failed = async move {
            let error = match validation.await {
                Some(error) => Some(error),
                None => memory.await,
            };
            error.map(|error| error.to_string())
        };
        (Handle::new(buffer), Box::pin(failed))
    }

    fn write(&self, buffer: &Buffer, offset: u64, data: &[u8]) {
        self.queue().write_buffer(buffer.own(), offset, data);
    }

    fn flush(&self) {
        self.queue().submit([]);
        // Frees staging memory that is no longer in use; a browser does so by itself.
        let _ = self.device().poll(wgpu::PollType::wait_indefinitely());
    }

    fn bind(&self, draft: &Draft, uniforms: &Buffer, slot: usize) -> Bound {
        let compiled = self.inner.pipelines.get(self.device(), draft.kernel);
        let params = wgpu::BufferBinding {
            buffer: uniforms.own(),
            offset: slot as u64 * SLOT,
            size: std::num::NonZeroU64::new(SLOT),
        };
        let mut entries = vec![wgpu::BindGroupEntry { binding: 0, resource: wgpu::BindingResource::Buffer(params) }];
        for (binding, buffer) in &draft.bindings {
            let resource = buffer.own::<wgpu::Buffer>().as_entire_binding();
            entries.push(wgpu::BindGroupEntry { binding: *binding, resource });
        }
        let bind_group = self.device().create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some(draft.kernel.stem()),
            layout: &compiled.layout,
            entries: &entries,
        });
        Tally::add(&self.inner.tally.bind_groups_created, 1);
        Handle::new(BoundStep { pipeline: compiled.pipeline, bind_group })
    }

    fn recorder(&self, timed: Option<Timed>) -> Box<dyn Recorder> {
        Box::new(recorder::Commands::new(self, timed))
    }

    fn read(&self, staging: &Buffer, bytes: u64, after: Option<&Submission>) -> Waiting<Result<Arrived>> {
        let mapping = Mapping::start(
            self,
            staging.own(),
            bytes,
            after.map(|submission| submission.own::<wgpu::SubmissionIndex>().clone()),
        );
        Box::pin(mapping.finish())
    }

    fn failure(&self) -> Option<String> {
        self.inner.failure.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    fn watch_completions(&self) {
        #[cfg(not(target_arch = "wasm32"))]
        {
            let inner = Arc::downgrade(&self.inner);
            std::thread::spawn(move || {
                while let Some(inner) = inner.upgrade() {
                    // A lost device is noticed by those who wait for it.
                    let _ = inner.device.poll(wgpu::PollType::Poll);
                    drop(inner);
                    std::thread::sleep(std::time::Duration::from_micros(200));
                }
            });
        }
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
