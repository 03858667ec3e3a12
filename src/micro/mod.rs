//! Micro models: small GGUF files with random weights, written in milliseconds.
//!
//! They have a real model's tensor names, metadata and block formats, so every part of the engine can be tested without
//! a download. The same description gives the same bytes. Weights have zero mean and a deviation of `1 / sqrt(K)`, K
//! being the length of a row, so that activations stay finite through any depth.

pub(crate) mod blocks;
mod hybrid;
mod model;
mod presets;
pub(crate) mod rng;
mod tokenizer;
pub mod writer;

pub use hybrid::DeltaNet;
pub use model::{Arch, MicroModel};
