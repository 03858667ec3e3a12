//! From a variant to what the driver loads: compiled by NVRTC and kept on disk, or PTX from the build.

use std::path::PathBuf;

use blueshift::{Error, Result};

use crate::cache::{Cache, Key, path_in};
use crate::kernels::embedded_ptx;
use crate::nvrtc::{Compiled, Nvrtc, Source, Target};
use crate::variants::Variant;

/// Where the compiler is and where its results are kept.
#[derive(Debug, Clone)]
pub struct CompileOptions {
    /// NVRTC: its file or the folder it is in. By default `$BLUESHIFT_NVRTC`; without that the system's.
    pub nvrtc: Option<PathBuf>,
    /// The folder of compiled kernels. By default `$BLUESHIFT_CACHE`, else the user's cache folder; `None` keeps nothing.
    pub cache: Option<PathBuf>,
}

impl Default for CompileOptions {
    fn default() -> Self {
        let cache = path_in("BLUESHIFT_CACHE").or_else(Cache::usual_folder);
        CompileOptions { nvrtc: path_in("BLUESHIFT_NVRTC"), cache }
    }
}

/// Compiles kernels for one device.
#[derive(Debug)]
pub struct Compiler {
    /// The compiler and what it compiles for; without it, why there is none.
    nvrtc: Result<(Nvrtc, Target), String>,
    cache: Option<Cache>,
}

impl Compiler {
    /// A compiler for a device of a compute capability (90 is 9.0) and a driver of a CUDA major version, which runs machine code of
    /// compilers of its own major version and older ones.
    pub fn new(options: &CompileOptions, capability: u32, driver_major: u32) -> Self {
        let nvrtc = Nvrtc::load(options.nvrtc.as_deref(), driver_major).and_then(|nvrtc| {
            let target = target(&nvrtc.capabilities, capability).ok_or_else(|| {
                let oldest = nvrtc.capabilities.first().copied().unwrap_or(0);
                format!(
                    "NVRTC {}.{} compiles for compute capability {} and later, the device has {}; install an older NVRTC",
                    nvrtc.version.0,
                    nvrtc.version.1,
                    dotted(oldest),
                    dotted(capability),
                )
            })?;
            Ok((nvrtc, target))
        });
        Compiler { nvrtc, cache: options.cache.clone().map(Cache::new) }
    }

    /// What the driver loads for a variant.
    ///
    /// # Errors
    /// `Device` where the text does not compile, or where there is neither a compiler nor PTX from the build.
    pub fn image(&self, variant: &Variant) -> Result<Vec<u8>> {
        match &self.nvrtc {
            Ok((nvrtc, target)) => self.cached(nvrtc, variant, *target),
            Err(reason) => embedded_ptx(variant).map(<[u8]>::to_vec).ok_or_else(|| Error::Device {
                reason: format!(
                    "the CUDA kernels cannot be compiled: {reason}. Install NVRTC, which is a part of the CUDA toolkit and the Python \
                     package nvidia-cuda-nvrtc, and name its folder in BLUESHIFT_NVRTC where the system does not find it"
                ),
            }),
        }
    }

    fn cached(&self, nvrtc: &Nvrtc, variant: &Variant, target: Target) -> Result<Vec<u8>> {
        let texts = variant.texts();
        let version = format!("NVRTC {}.{}", nvrtc.version.0, nvrtc.version.1);
        let options = target.options();
        let settings = [version.as_str()].into_iter().chain(options.iter().chain(&variant.macros).map(String::as_str));
        let key = Key::of(settings.chain(texts.iter().flat_map(|(name, text)| [*name, *text])));
        if let Some(image) = self.cache.as_ref().and_then(|cache| cache.get(&key)) {
            return Ok(image);
        }
        let image = compile(nvrtc, variant, target)?.image;
        if let Some(cache) = &self.cache {
            // Without room on the disk the kernel is compiled again next time.
            let _ = cache.put(&key, &image);
        }
        Ok(image)
    }
}

/// Compiles a variant.
///
/// # Errors
/// `Device` with the compiler's messages.
pub fn compile(nvrtc: &Nvrtc, variant: &Variant, target: Target) -> Result<Compiled> {
    let failed = |reason| Error::Device { reason: format!("the CUDA kernel {}: {reason}", variant.name) };
    let texts = variant.texts();
    let [(name, text), headers @ ..] = texts.as_slice() else {
        return Err(failed(format!("{} is missing", variant.file())));
    };
    nvrtc.compile(&Source { name, text, headers }, &variant.macros, target).map_err(failed)
}

/// What a device runs fastest of what a compiler gives: machine code where it knows the device, else PTX of the latest capability before it.
fn target(capabilities: &[u32], device: u32) -> Option<Target> {
    let latest = capabilities.iter().copied().filter(|capability| *capability <= device).max()?;
    Some(if latest == device { Target::Machine(device) } else { Target::Ptx(latest) })
}

/// A compute capability as people write it.
pub(crate) fn dotted(capability: u32) -> String {
    format!("{}.{}", capability / 10, capability % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_get_machine_code_where_it_can_be() {
        let known = [75, 80, 90, 100];
        let cases = [
            (90, Some(Target::Machine(90))),
            (75, Some(Target::Machine(75))),
            (89, Some(Target::Ptx(80))),
            (121, Some(Target::Ptx(100))),
            (70, None),
        ];
        for (device, wanted) in cases {
            assert_eq!(target(&known, device), wanted, "{device}");
        }
    }

    #[test]
    fn a_missing_compiler_is_named_with_what_to_do() {
        let options = CompileOptions { nvrtc: Some("/nowhere/libnvrtc.so".into()), cache: None };
        let compiler = Compiler::new(&options, 90, 13);
        let reason = compiler.nvrtc.as_ref().unwrap_err();
        assert!(reason.contains("/nowhere/libnvrtc.so"), "{reason}");
        let variant = Variant::all().remove(0);
        match compiler.image(&variant) {
            Err(Error::Device { reason }) => assert!(reason.contains("nvidia-cuda-nvrtc"), "{reason}"),
            other => assert_eq!(other.unwrap(), embedded_ptx(&variant).unwrap()),
        }
    }
}
