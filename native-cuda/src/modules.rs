//! Kernels on the device: compiled and loaded by a few threads while the host goes on binding others.

use std::collections::{HashMap, VecDeque};
use std::ffi::CStr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use blueshift::gpu::Kernel;
use blueshift::{Error, Result};
use cudarc::driver::result::{self, function, module};
use cudarc::driver::sys::{self, CUfunction_attribute};

use crate::compile::Compiler;
use crate::device::Device;
use crate::errors::failed;
use crate::variants::Variant;

const ENTRY: &CStr = c"kernel_main";
/// The variable that holds the bytes of shared memory a launch is to give.
const SHARED_BYTES: &CStr = c"shared_bytes";

/// A loaded kernel.
#[derive(Debug)]
pub(crate) struct Function {
    device: Device,
    module: sys::CUmodule,
    pub(crate) raw: sys::CUfunction,
    /// Threads of a block, which are those of the kernel's launch bounds.
    pub(crate) threads: u32,
    /// Bytes of shared memory that the launch gives.
    pub(crate) shared_bytes: u32,
}

// SAFETY: modules and functions may be used from any thread; the handles are never changed.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// A kernel that is there sooner or later, or why it is not.
pub(crate) type Loading = Arc<OnceLock<Result<Function, String>>>;

/// All kernels of a device.
#[derive(Debug)]
pub(crate) struct Modules {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    device: Device,
    compiler: Compiler,
    state: Mutex<State>,
    max_workers: usize,
}

#[derive(Debug, Default)]
struct State {
    kernels: HashMap<Kernel, Loading>,
    waiting: VecDeque<(Kernel, Loading)>,
    workers: usize,
}

impl Modules {
    pub(crate) fn new(device: &Device, compiler: Compiler) -> Self {
        let max_workers = std::thread::available_parallelism().map_or(1, usize::from);
        let shared = Shared { device: device.clone(), compiler, state: Mutex::default(), max_workers };
        Modules { shared: Arc::new(shared) }
    }

    /// A kernel; on its first use it begins to be compiled and loaded.
    pub(crate) fn get(&self, kernel: Kernel) -> Loading {
        let mut state = self.shared.lock();
        if let Some(loading) = state.kernels.get(&kernel) {
            return loading.clone();
        }
        let loading = Loading::default();
        state.kernels.insert(kernel, loading.clone());
        state.waiting.push_back((kernel, loading.clone()));
        if state.workers < self.shared.max_workers {
            state.workers += 1;
            let shared = self.shared.clone();
            std::thread::spawn(move || shared.work());
        }
        loading
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Loads kernels until none waits.
    fn work(&self) {
        loop {
            let mut state = self.lock();
            let Some((kernel, loading)) = state.waiting.pop_front() else {
                state.workers -= 1;
                return;
            };
            drop(state);
            // Nobody else sets it.
            let _ = loading.set(self.load(kernel).map_err(|error| error.to_string()));
        }
    }

    fn load(&self, kernel: Kernel) -> Result<Function> {
        let variant = Variant::of(kernel)
            .ok_or_else(|| Error::Device { reason: format!("the kernel {} does not exist for CUDA", kernel.name()) })?;
        let image = self.compiler.image(&variant)?;
        self.device.bind()?;
        let doing = format!("loading the kernel {}", variant.name);
        // SAFETY: the image is machine code, or PTX that ends with a zero byte.
        let module = unsafe { module::load_data(image.as_ptr().cast()) }.map_err(|e| failed(&doing, e))?;
        let device = self.device.clone();
        let mut loaded = Function { device, module, raw: std::ptr::null_mut(), threads: 0, shared_bytes: 0 };
        // SAFETY: the module was loaded above, the function is its own.
        unsafe {
            loaded.raw = module::get_function(module, ENTRY.into()).map_err(|e| failed(&doing, e))?;
            let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
            let threads = function::get_function_attribute(loaded.raw, attribute).map_err(|e| failed(&doing, e))?;
            loaded.threads = threads as u32;
            if variant.asks_for_shared_memory() {
                let (at, _) = module::get_global(module, SHARED_BYTES.into()).map_err(|e| failed(&doing, e))?;
                let mut bytes = [0u8; 4];
                result::memcpy_dtoh_sync(&mut bytes, at).map_err(|e| failed(&doing, e))?;
                loaded.shared_bytes = u32::from_le_bytes(bytes);
                let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
                function::set_function_attribute(loaded.raw, attribute, loaded.shared_bytes as i32)
                    .map_err(|e| failed(&doing, e))?;
            }
        }
        Ok(loaded)
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            // SAFETY: nothing launches the kernel any more. A failure leaves nothing to be done.
            let _ = unsafe { module::unload(self.module) };
        }
    }
}
