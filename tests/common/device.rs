//! The GPU of the tests: a WebGPU adapter. `native-cuda` runs some of the same tests with a device of its own in this file's place.

use std::sync::OnceLock;

use blueshift::engine::BackendChoice;
use blueshift::gpu::{Gpu, list_adapters};

/// Whether there is a GPU. Where there is none the test is to return early: a line says that it is ignored; under CI that is a failure.
pub(crate) fn has_adapter() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    let found = *FOUND.get_or_init(|| !pollster::block_on(list_adapters()).is_empty());
    if !found {
        super::ignored("no GPU adapter: install a Vulkan driver, for example Mesa's llvmpipe");
    }
    found
}

/// Opens the GPU.
pub(crate) fn open_gpu() -> Gpu {
    pollster::block_on(Gpu::open(None)).expect("a device")
}

/// What an engine on `backend` is to be given; it finds an adapter by itself.
pub(crate) fn gpu_for(_backend: BackendChoice) -> Option<Gpu> {
    None
}
