//! blueshift decodes GGUF language models on WebGPU and on the CPU, with the same bits everywhere.
//!
//! The data flow, and where each step lives:
//!
//! | step | from and to | modules |
//! | --- | --- | --- |
//! | open | bytes to a checked header | [`gguf`] |
//! | load | header to configuration and plan; tensors to planes on a device | [`model`], [`plan`], [`quant`] |
//! | prefill | a prompt to keys, values and logits | [`cpu`], [`gpu`] |
//! | decode | token after token, several submits ahead | [`engine`] |
//! | constrain | a JSON schema, a regular expression or a Lark grammar to a mask of ids | `grammar` |
//! | sample | logits to a token id | [`sample`] |
//! | text | ids to whole characters, up to a stop string | [`tokenizer`], [`chat`] |
//!
//! [`numerics`] is the arithmetic that all of them share; [`micro`] writes small models for tests.

pub mod chat;
#[cfg(feature = "cli")]
pub mod cli;
pub mod cpu;
pub mod engine;
pub mod error;
pub mod gguf;
pub mod gpu;
#[cfg(feature = "grammar")]
pub mod grammar;
#[cfg(not(feature = "grammar"))]
#[path = "grammar/absent.rs"]
pub mod grammar;
pub mod micro;
pub mod model;
pub mod numerics;
pub mod plan;
pub mod quant;
pub mod sample;
pub mod tokenizer;
#[cfg(target_arch = "wasm32")]
pub mod web;

pub use error::{Error, GrammarFault, Result};
