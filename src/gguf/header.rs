//! The header of a model: metadata and tensor table.

use std::collections::HashMap;

use super::cursor::{Cursor, Parse};
use super::metadata::{Metadata, read_metadata};
use super::tensor::{TensorInfo, place, read_table};
use crate::error::{Error, Result};

const MAGIC: &[u8] = b"GGUF";
const DEFAULT_ALIGNMENT: u64 = 32;
/// Most metadata pairs of a file.
const MAX_KEYS: u64 = 16_384;
/// Most tensors of a file.
const MAX_TENSORS: u64 = 16_384;
/// Fewest bytes of a pair: key length, one byte of key, type, one byte of value.
const MIN_PAIR_BYTES: u64 = 14;
/// Fewest bytes of an entry of the tensor table: name length, one byte of name, one dimension, type, offset.
const MIN_ENTRY_BYTES: u64 = 33;

/// What a model's files say about it, checked.
#[derive(Debug, Clone, Default)]
pub struct Header {
    /// GGUF version of the first file: 2 or 3.
    pub version: u32,
    /// Metadata of the first file.
    pub metadata: Metadata,
    tensors: Vec<TensorInfo>,
    index: HashMap<String, usize>,
}

impl Header {
    /// The tensors in the files' order.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor of this name, if present.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.index.get(name).map(|i| &self.tensors[*i])
    }

    /// The tensor of this name.
    ///
    /// # Errors
    /// `MissingTensor`.
    pub fn require(&self, name: &str) -> Result<&TensorInfo> {
        self.tensor(name).ok_or_else(|| Error::MissingTensor { tensor: name.into() })
    }

    /// Takes the tensors out.
    pub(super) fn take_tensors(&mut self) -> Vec<TensorInfo> {
        self.index.clear();
        std::mem::take(&mut self.tensors)
    }

    /// Appends tensors read from the file `source`; a name seen before is an error.
    pub(super) fn append(&mut self, source: &str, tensors: Vec<TensorInfo>) -> Result<()> {
        for tensor in tensors {
            if self.index.insert(tensor.name.clone(), self.tensors.len()).is_some() {
                return Err(Error::Malformed {
                    name: source.into(),
                    section: "tensor table",
                    offset: tensor.offset,
                    reason: format!("tensor {} appears twice", tensor.name),
                });
            }
            self.tensors.push(tensor);
        }
        Ok(())
    }
}

/// Reads the header from a prefix of the file that is shard `shard` of its model.
pub(super) fn parse(c: &mut Cursor, shard: usize) -> Parse<Header> {
    c.section = "header";
    let version = read_version(c)?;
    let n_tensors = c.count("tensors", MIN_ENTRY_BYTES, MAX_TENSORS)?;
    let n_pairs = c.count("metadata pairs", MIN_PAIR_BYTES, MAX_KEYS)?;
    c.section = "metadata";
    let metadata = read_metadata(c, n_pairs)?;
    let alignment = alignment(&metadata)?;
    c.section = "tensor table";
    let mut tensors = read_table(c, n_tensors, shard)?;
    let data_start = (c.pos() as u64).next_multiple_of(alignment);
    place(c, &mut tensors, data_start, alignment)?;
    let mut header = Header { version, metadata, ..Header::default() };
    header.append(c.name(), tensors)?;
    Ok(header)
}

fn read_version(c: &mut Cursor) -> Parse<u32> {
    let not_gguf = |reason: String| Error::NotGguf { name: c.name().into(), reason };
    if c.file_len() < 8 {
        return Err(not_gguf(format!("{} bytes are too short for a GGUF file", c.file_len())).into());
    }
    let magic = c.take(4)?;
    if magic != MAGIC {
        let found = magic.escape_ascii();
        return Err(Error::NotGguf {
            name: c.name().into(),
            reason: format!("it starts with \"{found}\", expected \"GGUF\""),
        }
        .into());
    }
    let version = c.u32()?;
    let reason = match version {
        2 | 3 => return Ok(version),
        v if (1..=3).contains(&v.swap_bytes()) => "a big-endian file, expected a little-endian one".to_string(),
        v => format!("version {v}, expected 2 or 3"),
    };
    Err(Error::NotGguf { name: c.name().into(), reason }.into())
}

/// Alignment of tensor data in bytes: a power of two.
fn alignment(metadata: &Metadata) -> Result<u64> {
    const KEY: &str = "general.alignment";
    let alignment = metadata.opt_u32(KEY)?.map_or(DEFAULT_ALIGNMENT, u64::from);
    if !alignment.is_power_of_two() {
        return Err(Error::BadValue {
            key: KEY.into(),
            found: alignment.to_string(),
            expected: "a power of two".into(),
        });
    }
    Ok(alignment)
}
