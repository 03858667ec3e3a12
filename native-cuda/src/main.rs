//! The command line with CUDA.

use blueshift::cli::Cuda;
use blueshift_native_cuda::{Device, open};

fn main() {
    blueshift::cli::main(Some(Cuda { open, names: Device::names }));
}
