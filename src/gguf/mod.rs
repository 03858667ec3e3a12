//! GGUF: bytes to header to tensor table. Nothing in a file is trusted before it is checked.
//!
//! Format reference: the GGUF specification in the ggml repository (`docs/gguf.md`). Versions 2 and 3 are read,
//! little-endian. A [`Source`] gives bytes by offset; [`open`] reads the headers of a model's files through it, and
//! [`GgufFile::read_tensor`] the tensors, a part at a time.
//!
//! Memory is bounded by the header's own size: every count is compared with the bytes left in the file before anything
//! is allocated for it.

mod array;
mod cursor;
mod header;
mod metadata;
mod open;
mod shards;
mod source;
mod tensor;
mod value;

pub use array::Array;
pub use header::Header;
pub use metadata::Metadata;
pub use open::{GgufFile, open, open_with};
pub use source::Source;
pub use tensor::TensorInfo;
pub use value::Value;
