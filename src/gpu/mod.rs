//! The GPU backend: plans on a device that launches kernels, over WebGPU natively and in a browser; other drivers plug in at [`driver`].
#![cfg_attr(
    target_arch = "wasm32",
    allow(clippy::arc_with_non_send_sync, reason = "the same types are shared between threads natively")
)]

mod backend;
mod batches;
mod buffers;
mod burst;
mod calibration;
pub mod cases;
mod device;
pub mod driver;
mod floor;
mod instances;
mod kernels;
mod kv;
mod ops;
mod params;
mod readback;
mod recorder;
mod recurrent;
mod ring;
mod sampler;
pub mod selftest;
mod sequence;
mod tally;
mod tiles;
mod timing;
mod webgpu;
mod weights;
mod words;

pub use backend::GpuBackend;
pub use burst::InFlight;
pub use device::Gpu;
pub use driver::AdapterSummary;
pub use kernels::{Kernel, MatMulForm, Output, shader_sources};
pub use recorder::Grid;
pub use tally::Tally;
pub use webgpu::{ShaderPatch, list_adapters};
pub use weights::GpuWeights;
