//! The CUDA side of blueshift: the plans of the root crate on NVIDIA GPUs, with the same bits.
//!
//! Kernels are texts (`kernels/`), twins of the WGSL ones. They are compiled by NVRTC for the device at hand when they are first used, and
//! kept on disk.

mod cache;
mod commands;
mod compile;
mod device;
mod driver;
#[cfg(all(feature = "emulator", target_os = "linux", target_arch = "x86_64"))]
mod emulator;
mod errors;
mod graph;
mod kernels;
mod memory;
mod modules;
mod nvrtc;
mod recorder;
mod stream;
mod uploads;
mod variants;

use blueshift::Result;
use blueshift::gpu::Gpu;

pub use compile::{CompileOptions, Compiler, compile};
pub use device::Device;
pub use driver::CudaDriver;
#[cfg(all(feature = "emulator", target_os = "linux", target_arch = "x86_64"))]
pub use emulator::Emulator;
pub use nvrtc::{Compiled, Nvrtc, Target};
pub use variants::{OLDEST_CAPABILITY, Variant};

/// Opens a GPU for the backend: the first whose name contains `name`, in any case, or the first one.
///
/// # Errors
/// Those of [`Device::named`] and [`CudaDriver::new`].
pub fn open(name: Option<&str>) -> Result<Gpu> {
    let device = Device::named(name)?;
    Ok(Gpu::new(CudaDriver::new(&device, &CompileOptions::default())?))
}
