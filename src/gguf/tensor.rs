//! The tensor table.

use super::cursor::{Cursor, Parse};
use crate::error::Error;
use crate::quant::QuantType;

/// Longest tensor name, in bytes.
const MAX_NAME_BYTES: usize = 255;
/// Most dimensions of a tensor.
const MAX_DIMS: u32 = 4;

/// Where a tensor lies and what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// The name.
    pub name: String,
    /// Sizes in ggml's order: `dims[0]` is the length of a row. One to four, none is zero.
    pub dims: Vec<u64>,
    /// Type of the elements; `dims[0]` is a multiple of its block length.
    pub kind: QuantType,
    /// Index of the file it lies in.
    pub shard: usize,
    /// Its first byte, counted from the start of that file.
    pub offset: u64,
    /// Its size in bytes.
    pub bytes: u64,
}

impl TensorInfo {
    /// Elements a row.
    pub fn row_len(&self) -> usize {
        self.dims[0] as usize
    }

    /// Number of rows: the product of all dimensions but the first.
    pub fn rows(&self) -> usize {
        self.dims[1..].iter().product::<u64>() as usize
    }

    /// Bytes of a row in the file.
    pub fn row_bytes(&self) -> usize {
        self.kind.row_bytes(self.row_len())
    }

    /// Byte after its last one, in its file.
    pub fn end(&self) -> u64 {
        self.offset + self.bytes
    }
}

/// Reads `n` entries. Offsets are still relative to the data section; they are not checked yet.
pub(super) fn read_table(c: &mut Cursor, n: usize, shard: usize) -> Parse<Vec<TensorInfo>> {
    let mut tensors = Vec::with_capacity(n);
    for _ in 0..n {
        tensors.push(read_entry(c, shard)?);
    }
    Ok(tensors)
}

fn read_entry(c: &mut Cursor, shard: usize) -> Parse<TensorInfo> {
    let at = c.pos();
    let name = c.identifier("tensor name", MAX_NAME_BYTES)?;
    let n_dims = c.u32()?;
    if !(1..=MAX_DIMS).contains(&n_dims) {
        return Err(c.malformed(at, format!("tensor {name} has {n_dims} dimensions, expected 1 to {MAX_DIMS}")).into());
    }
    let mut dims = Vec::with_capacity(n_dims as usize);
    for _ in 0..n_dims {
        dims.push(c.u64()?);
    }
    let type_id = c.u32()?;
    let offset = c.u64()?;
    let kind = QuantType::from_ggml_id(type_id).ok_or_else(|| unsupported(name, type_id))?;
    let bytes = size_in_bytes(&dims, kind)
        .map_err(|reason| c.malformed(at, format!("tensor {name} of {dims:?} {kind:?}: {reason}")))?;
    Ok(TensorInfo { name: name.into(), dims, kind, shard, offset, bytes })
}

/// Bytes of a tensor. All later products of its dimensions fit `usize` and `u64` where this succeeds.
fn size_in_bytes(dims: &[u64], kind: QuantType) -> Result<u64, String> {
    if dims.contains(&0) {
        return Err("a dimension is zero".into());
    }
    let block_len = kind.block_len() as u64;
    if !dims[0].is_multiple_of(block_len) {
        return Err(format!("a row of {} elements, expected a multiple of {block_len}", dims[0]));
    }
    let overflow = || "its size overflows".to_string();
    let elements = dims.iter().try_fold(1u64, |n, d| n.checked_mul(*d)).ok_or_else(overflow)?;
    let bytes = (elements / block_len).checked_mul(kind.block_bytes() as u64).ok_or_else(overflow)?;
    usize::try_from(bytes.max(elements)).map_err(|_| overflow())?;
    Ok(bytes)
}

fn unsupported(tensor: &str, type_id: u32) -> Error {
    let name =
        type_name(type_id).map_or_else(|| format!("unknown type {type_id}"), |n| format!("type {n} ({type_id})"));
    let supported: Vec<String> = QuantType::ALL.iter().map(|t| format!("{t:?}")).collect();
    Error::BadTensor {
        tensor: tensor.into(),
        found: name,
        expected: format!("one of the supported types {}", supported.join(", ")),
    }
}

/// ggml's names of the types that are not supported.
fn type_name(id: u32) -> Option<&'static str> {
    const NAMES: [(u32, &str); 22] = [
        (9, "Q8_1"),
        (10, "Q2_K"),
        (11, "Q3_K"),
        (15, "Q8_K"),
        (16, "IQ2_XXS"),
        (17, "IQ2_XS"),
        (18, "IQ3_XXS"),
        (19, "IQ1_S"),
        (20, "IQ4_NL"),
        (21, "IQ3_S"),
        (22, "IQ2_S"),
        (23, "IQ4_XS"),
        (24, "I8"),
        (25, "I16"),
        (26, "I32"),
        (27, "I64"),
        (28, "F64"),
        (29, "IQ1_M"),
        (34, "TQ1_0"),
        (35, "TQ2_0"),
        (39, "MXFP4"),
        (40, "NVFP4"),
    ];
    NAMES.iter().find(|n| n.0 == id).map(|n| n.1)
}

/// Moves the offsets to absolute ones and checks alignment, bounds and overlap.
pub(super) fn place(c: &Cursor, tensors: &mut [TensorInfo], data_start: u64, alignment: u64) -> Result<(), Error> {
    let fault = |t: &TensorInfo, reason: String| Error::Malformed {
        name: c.name().into(),
        section: "tensor data",
        offset: data_start.saturating_add(t.offset),
        reason: format!("tensor {} {reason}", t.name),
    };
    let file_len = c.file_len();
    for t in tensors.iter_mut() {
        if !t.offset.is_multiple_of(alignment) {
            return Err(fault(t, format!("is at offset {}, expected a multiple of {alignment}", t.offset)));
        }
        let start = data_start.checked_add(t.offset);
        let end = start.and_then(|s| s.checked_add(t.bytes));
        match (start, end) {
            (Some(start), Some(end)) if end <= file_len => t.offset = start,
            _ => return Err(fault(t, format!("has {} bytes, but the file ends at {file_len}", t.bytes))),
        }
    }
    let mut order: Vec<&TensorInfo> = tensors.iter().collect();
    order.sort_unstable_by_key(|t| t.offset);
    let overlap = order.windows(2).find(|pair| pair[1].offset < pair[0].end());
    match overlap {
        Some(pair) => Err(Error::Malformed {
            name: c.name().into(),
            section: "tensor data",
            offset: pair[1].offset,
            reason: format!("tensor {} overlaps {}", pair[1].name, pair[0].name),
        }),
        None => Ok(()),
    }
}
