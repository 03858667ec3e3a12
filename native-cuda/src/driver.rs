//! The CUDA driver of the root crate's backend: one context, one stream, kernels compiled for the device.

use std::sync::{Arc, Mutex, MutexGuard};

use blueshift::Result;
use blueshift::gpu::driver::{
    AdapterSummary, Arrived, Bound, Buffer, Draft, Driver, DriverInfo, Handle, MAX_PART, Recorder, Submission, Timed,
    Usage, Waiting, now_ms,
};
use blueshift::gpu::{MatMulForm, Tally};

use crate::compile::{CompileOptions, Compiler};
use crate::device::Device;
use crate::graph::Graphs;
use crate::memory::Memory;
use crate::modules::Modules;
use crate::recorder::{Commands, Step};
use crate::stream::{Event, Stream};
use crate::uploads::Uploads;

/// A GPU ready for the backend. Clones share one.
#[derive(Debug, Clone)]
pub struct CudaDriver {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    info: DriverInfo,
    tally: Tally,
    // Dropped in this order: what uses the stream before the stream.
    graphs: Mutex<Graphs>,
    uploads: Mutex<Uploads>,
    modules: Modules,
    stream: Stream,
}

impl CudaDriver {
    /// A driver of a GPU.
    ///
    /// # Errors
    /// `Device` where the GPU fails. A compiler that is missing is an error where the first kernel is needed.
    pub fn new(device: &Device, options: &CompileOptions) -> Result<Self> {
        let (major, minor) = device.driver_version();
        let info = DriverInfo {
            backend: "cuda",
            adapter: AdapterSummary {
                name: device.name().into(),
                api: "cuda".into(),
                kind: if device.is_integrated()? { "IntegratedGpu" } else { "DiscreteGpu" }.into(),
                driver: format!("CUDA {major}.{minor}"),
            },
            is_software: false,
            matmul_forms: &[MatMulForm::Warps],
            max_binding: MAX_PART,
            has_timestamps: true,
        };
        let stream = Stream::new(device)?;
        let compiler = Compiler::new(options, device.capability(), major);
        let inner = Inner {
            info,
            tally: Tally::default(),
            graphs: Mutex::new(Graphs::new(&stream)?),
            uploads: Mutex::new(Uploads::new(&stream)),
            modules: Modules::new(device, compiler),
            stream,
        };
        Ok(CudaDriver { inner: Arc::new(inner) })
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.inner.stream
    }

    pub(crate) fn graphs(&self) -> MutexGuard<'_, Graphs> {
        self.inner.graphs.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Driver for CudaDriver {
    fn info(&self) -> &DriverInfo {
        &self.inner.info
    }

    fn tally(&self) -> &Tally {
        &self.inner.tally
    }

    fn buffer(&self, _label: &str, bytes: u64, usage: Usage) -> (Buffer, Waiting<Option<String>>) {
        Tally::add(&self.inner.tally.buffers_created, 1);
        Tally::add(&self.inner.tally.buffer_bytes, bytes);
        let stream = self.stream();
        let allocated = match usage {
            Usage::Storage | Usage::State | Usage::Uniform => Memory::on_device(stream, bytes),
            Usage::Staging => Memory::on_host(stream, bytes),
        };
        let (memory, failed) = match allocated {
            Ok(memory) => (memory, None),
            Err(reason) => (Memory::nowhere(stream), Some(reason)),
        };
        (Handle::new(memory), Box::pin(std::future::ready(failed)))
    }

    fn write(&self, buffer: &Buffer, offset: u64, data: &[u8]) {
        let mut uploads = self.inner.uploads.lock().unwrap_or_else(|e| e.into_inner());
        let memory: &Memory = buffer.own();
        // What could not be allocated was reported; it is not written.
        if memory.bytes > 0 {
            let written = self.stream().device().bind().and_then(|()| uploads.write(memory, offset, data));
            self.stream().note(written);
        }
    }

    fn flush(&self) {
        // Writes hold a few chunks of pinned memory, whatever their number.
    }

    fn bind(&self, draft: &Draft, _uniforms: &Buffer, _slot: usize) -> Bound {
        Tally::add(&self.inner.tally.bind_groups_created, 1);
        Handle::new(Step::new(draft, self.inner.modules.get(draft.kernel)))
    }

    fn recorder(&self, timed: Option<Timed>) -> Box<dyn Recorder> {
        Box::new(Commands::new(self, timed))
    }

    fn read(&self, staging: &Buffer, bytes: u64, after: Option<&Submission>) -> Waiting<Result<Arrived>> {
        Tally::add(&self.inner.tally.maps, 1);
        let after = match after {
            Some(submission) => Ok(submission.clone()),
            None => Event::now(self.stream()).map(Handle::new),
        };
        let (driver, staging) = (self.clone(), staging.clone());
        Box::pin(async move {
            // A submission without an event failed, which the backend sees next.
            if let Some(event) = after?.get::<Event>() {
                event.wait()?;
            }
            let at_ms = now_ms();
            let bytes = staging.own::<Memory>().to_vec(bytes)?;
            Tally::add(&driver.inner.tally.bytes_read, bytes.len() as u64);
            Ok(Arrived { bytes, at_ms })
        })
    }

    fn failure(&self) -> Option<String> {
        self.stream().failure()
    }
}
