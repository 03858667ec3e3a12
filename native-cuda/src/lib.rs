//! The CUDA side of blueshift: the plans of the root crate on NVIDIA GPUs, with the same bits.
//!
//! Kernels are texts (`kernels/`), twins of the WGSL ones. They are compiled by NVRTC for the device at hand when they are first used, and
//! kept on disk.

mod cache;
mod compile;
mod device;
mod errors;
mod kernels;
mod nvrtc;
mod variants;

pub use compile::{CompileOptions, Compiler, compile};
pub use device::Device;
pub use nvrtc::{Compiled, Nvrtc, Target};
pub use variants::Variant;
