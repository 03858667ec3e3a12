//! The command line, without CUDA.

fn main() {
    blueshift::cli::main(None);
}
