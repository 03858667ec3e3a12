//! What the driver reports, in the crate's errors.

use blueshift::Error;
use cudarc::driver::result::DriverError;
use cudarc::driver::sys::CUresult;

/// An error of a call, which `what` names.
pub(crate) fn failed(what: &str, error: DriverError) -> Error {
    Error::Device { reason: format!("CUDA, {what}: {}", describe(error)) }
}

/// Name and text of a driver's error.
pub(crate) fn describe(error: DriverError) -> String {
    let text = |found: Result<&std::ffi::CStr, DriverError>| found.ok().map(|t| t.to_string_lossy().into_owned());
    let name = text(error.error_name()).unwrap_or_else(|| format!("error {}", error.0 as u32));
    match text(error.error_string()) {
        Some(text) => format!("{name} ({text})"),
        None => name,
    }
}

/// Why the driver does not start, and what to do.
pub(crate) fn cannot_start(status: CUresult) -> String {
    let advice = match status {
        CUresult::CUDA_ERROR_NO_DEVICE => {
            "no NVIDIA GPU is visible: check `nvidia-smi` and CUDA_VISIBLE_DEVICES; a container needs the GPU passed to it"
        }
        CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH => {
            "libcuda and the kernel's NVIDIA driver are of different versions: reboot after a driver update"
        }
        CUresult::CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE => {
            "this GPU does not run with a CUDA compatibility package: remove it from the library path or update the driver"
        }
        CUresult::CUDA_ERROR_STUB_LIBRARY => {
            "the libcuda found is a toolkit's stub: remove the toolkit's `stubs` folder from the library path"
        }
        CUresult::CUDA_ERROR_SYSTEM_NOT_READY => "the driver's services have not started: check the fabric manager",
        _ => "the NVIDIA driver does not start: check `nvidia-smi`, reload the driver or reboot",
    };
    format!("{advice} (CUDA error {})", status as u32)
}
