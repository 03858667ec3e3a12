//! blueshift decodes GGUF language models on WebGPU and on the CPU, with the same bits everywhere.

pub mod chat;
pub mod error;
pub mod gguf;
pub mod micro;
pub mod numerics;
pub mod quant;
pub mod tokenizer;

pub use error::{Error, Result};
