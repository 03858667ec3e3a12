//! The GPU of the tests: the CUDA kernels on the processor; where `BLUESHIFT_CUDA_TESTS` is `gpu`, an NVIDIA GPU.

use blueshift::engine::BackendChoice;
use blueshift::gpu::Gpu;
use blueshift_native_cuda::{Emulator, open};

/// There is one everywhere.
pub(crate) fn has_adapter() -> bool {
    true
}

/// Opens the GPU.
pub(crate) fn open_gpu() -> Gpu {
    match std::env::var("BLUESHIFT_CUDA_TESTS").as_deref() {
        Ok("gpu") => open(None).expect("an NVIDIA GPU"),
        _ => Gpu::new(Emulator::open().expect("the kernels compile")),
    }
}

/// What an engine on `backend` is to be given.
pub(crate) fn gpu_for(backend: BackendChoice) -> Option<Gpu> {
    (backend == BackendChoice::Gpu).then(open_gpu)
}
