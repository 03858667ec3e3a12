//! GGUF: bytes to header to tensor table. Nothing in a file is trusted before it is checked.
//!
//! Format reference: the GGUF specification in the ggml repository (`docs/gguf.md`).

pub mod metadata;

pub use metadata::{Array, Metadata, Value};
