//! The device: how it is found, what it is, and its context.

use std::sync::Arc;

use blueshift::{Error, Result};
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUdevice_attribute, CUresult};

use crate::compile::dotted;
use crate::errors::{cannot_start, failed};
use crate::variants::OLDEST_CAPABILITY;

/// The oldest CUDA version of a driver: the one of the bindings.
const OLDEST_DRIVER: u32 = 12_000;

/// A GPU with its context. Clones share one.
#[derive(Debug, Clone)]
pub struct Device {
    context: Arc<Context>,
}

#[derive(Debug)]
struct Context {
    device: sys::CUdevice,
    context: sys::CUcontext,
    name: String,
    capability: u32,
    driver: u32,
    total_bytes: u64,
}

// SAFETY: a context may be made current on any thread, on several at once; the handles are never changed.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Device {
    /// Opens the GPU of a number, as the driver counts them from 0.
    ///
    /// # Errors
    /// `NoAdapter` where there is no driver, an old one, no GPU of that number or one that is too old, `Device` where the GPU is refused;
    /// each says what to do.
    pub fn open(number: usize) -> Result<Self> {
        let driver = start()?;
        let n_devices = result::device::get_count().map_err(|e| failed("counting GPUs", e))?;
        if number >= n_devices as usize {
            let reason = format!("GPU {number} was asked for, the machine has {n_devices}, counted from 0");
            return Err(Error::NoAdapter { reason });
        }
        let device = result::device::get(number as i32).map_err(|e| failed("opening the GPU", e))?;
        let name = result::device::get_name(device).map_err(|e| failed("the GPU's name", e))?;
        let capability = capability(device).map_err(|e| failed("the GPU's compute capability", e))?;
        check_capability(&name, capability)?;
        // SAFETY: the device was returned by the driver.
        let total_bytes = unsafe { result::device::total_mem(device) }.map_err(|e| failed("the GPU's memory", e))?;
        // SAFETY: as above; the context is released when this is dropped.
        let context =
            unsafe { result::primary_ctx::retain(device) }.map_err(|e| failed("making a context on the GPU", e))?;
        let total_bytes = total_bytes as u64;
        let context = Arc::new(Context { device, context, name, capability, driver, total_bytes });
        let device = Device { context };
        device.bind()?;
        Ok(device)
    }

    /// Opens the first GPU whose name contains a text, in any case; without a text the first one.
    ///
    /// # Errors
    /// Those of [`Device::open`], and `NoAdapter` with the names there are where none contains the text.
    pub fn named(text: Option<&str>) -> Result<Self> {
        let Some(text) = text else { return Self::open(0) };
        let names = Self::names()?;
        let wanted = text.to_lowercase();
        match names.iter().position(|name| name.to_lowercase().contains(&wanted)) {
            Some(number) => Self::open(number),
            None => {
                let reason = format!("no GPU's name contains {text:?}; found: {}", names.join(", "));
                Err(Error::NoAdapter { reason })
            }
        }
    }

    /// The names of the GPUs that the driver has, by number.
    ///
    /// # Errors
    /// `NoAdapter` where there is no driver or an old one.
    pub fn names() -> Result<Vec<String>> {
        start()?;
        let n = result::device::get_count().map_err(|e| failed("counting GPUs", e))?;
        let name = |number| result::device::get(number).and_then(result::device::get_name);
        (0..n).map(|number| name(number).map_err(|e| failed("a GPU's name", e))).collect()
    }

    /// The GPU's name.
    pub fn name(&self) -> &str {
        &self.context.name
    }

    /// Its compute capability: 90 is 9.0.
    pub fn capability(&self) -> u32 {
        self.context.capability
    }

    /// The driver's CUDA version, major and minor.
    pub fn driver_version(&self) -> (u32, u32) {
        (self.context.driver / 1000, self.context.driver % 1000 / 10)
    }

    /// Bytes of its memory.
    pub fn total_bytes(&self) -> u64 {
        self.context.total_bytes
    }

    /// Whether it shares the host's memory.
    pub(crate) fn is_integrated(&self) -> Result<bool> {
        let attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED;
        // SAFETY: the device was returned by the driver.
        let integrated = unsafe { result::device::get_attribute(self.context.device, attribute) };
        Ok(integrated.map_err(|e| failed("the GPU's kind", e))? != 0)
    }

    /// Bytes of its memory that are free, for every program on the machine.
    pub fn free_bytes(&self) -> Result<u64> {
        self.bind()?;
        let (free, _) = result::mem_get_info().map_err(|e| failed("asking for free memory", e))?;
        Ok(free as u64)
    }

    /// Makes the context the calling thread's, which every call of the driver needs.
    pub(crate) fn bind(&self) -> Result<()> {
        // SAFETY: the context exists until this is dropped.
        unsafe { result::ctx::set_current(self.context.context) }.map_err(|e| failed("entering the context", e))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it was retained once when this was made. A failure leaves nothing to be done.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}

/// Starts the driver; its CUDA version, 13000 for 13.0.
fn start() -> Result<u32> {
    // SAFETY: loading the driver's library runs its initialisers, which the driver allows at any time.
    if !unsafe { sys::is_culib_present() } {
        let library = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };
        let reason = format!("{library} was not found: there is no NVIDIA GPU, or its driver is not installed");
        return Err(Error::NoAdapter { reason });
    }
    let mut version = 0;
    // SAFETY: the function writes to the place it is given.
    check(unsafe { sys::cuDriverGetVersion(&mut version) })?;
    check_driver(version.max(0) as u32)?;
    result::init().or_else(|DriverError(status)| check(status))?;
    Ok(version as u32)
}

fn check(status: CUresult) -> Result<()> {
    match status {
        CUresult::CUDA_SUCCESS => Ok(()),
        status => Err(Error::NoAdapter { reason: cannot_start(status) }),
    }
}

fn check_driver(version: u32) -> Result<()> {
    if version >= OLDEST_DRIVER {
        return Ok(());
    }
    let shown = |version: u32| format!("{}.{}", version / 1000, version % 1000 / 10);
    let (found, needed) = (shown(version), shown(OLDEST_DRIVER));
    let reason = format!("the NVIDIA driver is for CUDA {found}, CUDA {needed} or later is needed: update the driver");
    Err(Error::NoAdapter { reason })
}

fn check_capability(name: &str, capability: u32) -> Result<()> {
    if capability >= OLDEST_CAPABILITY {
        return Ok(());
    }
    let (found, needed) = (dotted(capability), dotted(OLDEST_CAPABILITY));
    let reason = format!("{name} has compute capability {found}, {needed} (Ampere) or later is needed");
    Err(Error::NoAdapter { reason })
}

fn capability(device: sys::CUdevice) -> Result<u32, DriverError> {
    // SAFETY: the device was returned by the driver.
    let of = |attribute| unsafe { result::device::get_attribute(device, attribute) };
    let major = of(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = of(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    Ok((major * 10 + minor) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(result: Result<()>) -> String {
        match result {
            Err(Error::NoAdapter { reason }) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn old_drivers_and_gpus_are_refused_with_what_is_needed() {
        assert!(check_driver(12_000).is_ok() && check_driver(13_010).is_ok());
        let found = reason(check_driver(11_080));
        assert!(found.contains("CUDA 11.8") && found.contains("CUDA 12.0"), "{found}");
        assert!(check_capability("A100", 80).is_ok() && check_capability("H200", 90).is_ok());
        let found = reason(check_capability("T4", 75));
        assert!(found.contains("T4") && found.contains("7.5") && found.contains("8.0"), "{found}");
    }

    #[test]
    fn a_driver_that_does_not_start_says_why() {
        for (status, wanted) in [
            (CUresult::CUDA_ERROR_NO_DEVICE, "CUDA_VISIBLE_DEVICES"),
            (CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "reboot"),
            (CUresult::CUDA_ERROR_STUB_LIBRARY, "stub"),
            (CUresult::CUDA_ERROR_UNKNOWN, "nvidia-smi"),
        ] {
            let found = reason(check(status));
            assert!(found.contains(wanted), "{found}");
        }
    }

    /// On a machine with a GPU it opens; on any other the error says what is missing, and nothing panics.
    #[test]
    fn opening_gives_a_device_or_says_what_is_missing() {
        match Device::open(0) {
            Ok(device) => assert!(device.capability() >= OLDEST_CAPABILITY && device.total_bytes() > 0),
            Err(Error::NoAdapter { reason }) => assert!(!reason.is_empty()),
            Err(other) => panic!("{other}"),
        }
    }
}
