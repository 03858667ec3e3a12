//! The command line with CUDA.

fn main() {
    blueshift::cli::main(Some(blueshift_native_cuda::open));
}
