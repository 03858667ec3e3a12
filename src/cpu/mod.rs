//! The CPU backend: the specification of every operation, and the fallback where there is no GPU.

mod dot;
pub mod matmul;
pub mod matrix;
pub mod pool;
pub mod quantise;
