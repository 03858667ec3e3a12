//! blueshift decodes GGUF language models on WebGPU and on the CPU, with the same bits everywhere.

pub mod chat;
pub mod cpu;
pub mod engine;
pub mod error;
pub mod gguf;
pub mod gpu;
pub mod micro;
pub mod model;
pub mod numerics;
pub mod plan;
pub mod quant;
pub mod sample;
pub mod tokenizer;
#[cfg(target_arch = "wasm32")]
pub mod web;

pub use error::{Error, Result};
