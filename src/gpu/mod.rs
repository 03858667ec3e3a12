//! The wgpu backend: plans on a GPU, natively and in a browser.
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
mod floor;
mod instances;
mod kv;
mod ops;
mod params;
mod pipelines;
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
mod weights;
mod words;

pub use backend::GpuBackend;
pub use burst::InFlight;
pub use device::{AdapterSummary, Gpu, list_adapters};
pub use pipelines::{ShaderPatch, shader_sources};
pub use weights::GpuWeights;
