//! The seam between the backend and a kind of device: WebGPU is one (`gpu::webgpu`), CUDA in the crate `native-cuda` another.
//!
//! What a driver is given is decided already: which kernel, which parameters, which buffers, how many workgroups. It allocates, compiles,
//! launches in order, and reads back.

use std::any::Any;
use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;

use super::kernels::{Kernel, MatMulForm};
use super::recorder::Grid;
use super::tally::Tally;
use crate::error::Result;
use crate::plan::Tag;

/// The engine's clock, by which drivers say when something was there.
pub use crate::engine::clock::now_ms;

/// Largest part a buffer of weights or cache is split into, whatever a device allows: kernels count its bytes in 31 bits.
pub const MAX_PART: u64 = (1 << 31) - 4096;

/// Something that is there later.
pub type Waiting<T> = Pin<Box<dyn Future<Output = T>>>;

/// An object of a driver, whose type the driver alone knows.
pub trait Object: Any + Debug + wgpu::WasmNotSendSync {}

impl<T: Any + Debug + wgpu::WasmNotSendSync> Object for T {}

/// A shared object of a driver.
#[derive(Debug, Clone)]
pub struct Handle(Arc<dyn Object>);

impl Handle {
    /// Holds `object`.
    pub fn new(object: impl Object) -> Self {
        Handle(Arc::new(object))
    }

    /// The object, where it is a `T`.
    pub fn get<T: Any>(&self) -> Option<&T> {
        (&*self.0 as &dyn Any).downcast_ref()
    }

    /// The object of the driver that made it.
    pub fn own<T: Any>(&self) -> &T {
        self.get().expect("a handle stays with the driver that made it")
    }
}

/// A buffer on a device: on WebGPU a `wgpu::Buffer`.
pub type Buffer = Handle;
/// A kernel bound to its parameters and buffers.
pub type Bound = Handle;
/// Work that was submitted.
pub type Submission = Handle;

/// What a buffer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    /// Kernels read and write it.
    Storage,
    /// The state: one kernel advances it, all others read it as parameters.
    State,
    /// Parameters of kernels.
    Uniform,
    /// The host reads it.
    Staging,
}

/// A device, for listings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdapterSummary {
    /// The adapter's name.
    pub name: String,
    /// Its interface, for example `vulkan` or `cuda`.
    pub api: String,
    /// Kind, for example `DiscreteGpu` or `Cpu`.
    pub kind: String,
    /// Driver name and version.
    pub driver: String,
}

/// What a driver can do.
#[derive(Debug, Clone)]
pub struct DriverInfo {
    /// `wgpu` or `cuda`.
    pub backend: &'static str,
    /// The device.
    pub adapter: AdapterSummary,
    /// Whether it computes on the processor: work is then kept small.
    pub is_software: bool,
    /// How matmuls may spread their work; the first one is how they do.
    pub matmul_forms: &'static [MatMulForm],
    /// Bytes one buffer of weights or cache may have.
    pub max_binding: u64,
    /// Whether it can time what it does.
    pub has_timestamps: bool,
}

/// A kernel with what it is to be bound to.
#[derive(Debug, Clone)]
pub struct Draft {
    /// The kernel.
    pub kernel: Kernel,
    /// The bytes of the kernel's `Params`.
    pub params: Vec<u8>,
    /// Binding numbers and buffers, all but the parameters.
    pub bindings: Vec<(u32, Buffer)>,
    /// How many workgroups it has.
    pub grid: Grid,
    /// What reports call it.
    pub tag: Tag,
}

impl Draft {
    /// The buffers by ascending binding.
    pub fn buffers(&self) -> Vec<Buffer> {
        let mut bindings: Vec<_> = self.bindings.iter().collect();
        bindings.sort_by_key(|(number, _)| *number);
        bindings.into_iter().map(|(_, buffer)| buffer.clone()).collect()
    }
}

/// What of a submit is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timed {
    /// Every dispatch by itself, instead of all of it together.
    pub each: bool,
    /// Whether every dispatch is a submit of its own.
    pub split: bool,
}

/// A time that was taken: of a dispatch, or of several together where there is no tag.
#[derive(Debug, Clone)]
pub struct Span {
    /// What ran.
    pub tag: Option<Arc<Tag>>,
    /// The device's clock before and after it.
    pub ticks: [u64; 2],
}

/// The times of a submit.
#[derive(Debug, Clone, Default)]
pub struct Spans {
    /// In the order of execution.
    pub spans: Vec<Span>,
    /// Nanoseconds of a tick.
    pub ns_per_tick: f64,
}

/// What was read, and the time (of the engine's clock) it was there.
#[derive(Debug, Clone)]
pub struct Arrived {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Milliseconds.
    pub at_ms: f64,
}

/// A submit.
pub struct Submitted {
    /// The work.
    pub submission: Submission,
    /// Its times, where it is timed.
    pub spans: Option<Waiting<Result<Spans>>>,
}

/// Records work in the order in which it is to run.
pub trait Recorder {
    /// Launches a step; it sees what all before it wrote.
    fn dispatch(&mut self, step: &Bound, groups: [u32; 3], tag: &Arc<Tag>);
    /// Copies bytes; offsets and sizes are multiples of 4.
    fn copy(&mut self, from: &Buffer, from_offset: u64, to: &Buffer, to_offset: u64, bytes: u64);
    /// Submits what was recorded so far and goes on.
    fn flush(&mut self);
    /// Submits all.
    fn submit(self: Box<Self>) -> Submitted;
}

/// A device with its queue and compiled kernels. What fails later than a call returns is told by [`Driver::failure`].
pub trait Driver: Debug + wgpu::WasmNotSendSync {
    /// What it can do.
    fn info(&self) -> &DriverInfo;
    /// Its counters, which it raises for what the backend does not see: bind groups, query sets, submits, readings.
    fn tally(&self) -> &Tally;
    /// A zeroed buffer of `bytes`, a multiple of 16, and why there is none, known later.
    fn buffer(&self, label: &str, bytes: u64, usage: Usage) -> (Buffer, Waiting<Option<String>>);
    /// Writes bytes before whatever is submitted later; offset and size are multiples of 4.
    fn write(&self, buffer: &Buffer, offset: u64, data: &[u8]);
    /// Lets go of what earlier writes held on the host.
    fn flush(&self);
    /// Compiles a kernel where it was not yet and binds it; its parameters lie in slot `slot` of `uniforms`, too.
    fn bind(&self, draft: &Draft, uniforms: &Buffer, slot: usize) -> Bound;
    /// Begins a submit.
    fn recorder(&self, timed: Option<Timed>) -> Box<dyn Recorder>;
    /// Asks for the first `bytes` (a multiple of 4) of a staging buffer, which `after` fills; `None` waits for everything submitted. Dropping what
    /// waits cancels it.
    fn read(&self, staging: &Buffer, bytes: u64, after: Option<&Submission>) -> Waiting<Result<Arrived>>;
    /// The first error that no call returned, or why the device was lost.
    fn failure(&self) -> Option<String>;
    /// Notices results when they are there, also while nobody waits for them.
    fn watch_completions(&self) {}
}
