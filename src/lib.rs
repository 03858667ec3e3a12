//! blueshift decodes GGUF language models on WebGPU and on the CPU, with the same bits everywhere.

pub mod cpu;
pub mod error;
pub mod gguf;
pub mod numerics;
pub mod quant;

pub use error::{Error, Result};
