//! The CUDA side of blueshift: the plans of the root crate on NVIDIA GPUs, with the same bits.
//!
//! Kernels are texts (`kernels/`), twins of the WGSL ones. They are compiled by NVRTC for the device at hand when they are first used, and
//! kept on disk.

mod cache;
mod compile;
mod device;
#[cfg(all(feature = "emulator", target_os = "linux", target_arch = "x86_64"))]
mod emulator;
mod errors;
mod kernels;
mod nvrtc;
mod variants;

pub use compile::{CompileOptions, Compiler, compile};
pub use device::Device;
#[cfg(all(feature = "emulator", target_os = "linux", target_arch = "x86_64"))]
pub use emulator::Emulator;
pub use nvrtc::{Compiled, Nvrtc, Target};
pub use variants::Variant;

/// Largest part a buffer of weights or cache is split into: kernels count its bytes in 31 bits.
pub(crate) const MAX_PART: u64 = (1 << 31) - 4096;
