//! Metadata arrays: kept encoded, decoded while they are read.

use std::borrow::Cow;

use super::cursor::{Cursor, Parse};
use super::value::ValueType;

/// Nesting allowed for arrays of arrays.
const MAX_DEPTH: usize = 4;

/// An array in the file's own encoding (little-endian), decoded as it is read.
///
/// The iterators give `None` where the elements are of another kind. An empty array is of every kind.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Array {
    /// GGUF's code of the elements' type.
    pub element_type: u32,
    /// Number of elements.
    pub len: usize,
    /// The elements, encoded, validated when the file was opened.
    pub bytes: Vec<u8>,
}

impl Array {
    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements' type, where it is one of GGUF's.
    fn kind(&self) -> Option<ValueType> {
        ValueType::from_id(self.element_type)
    }

    /// Text for error messages: `an array of 3 u32`.
    pub fn describe(&self) -> String {
        let kind = self.kind().map_or("unknown", ValueType::name);
        format!("an array of {} {kind}", self.len)
    }

    /// The bytes of each string. Token lists may hold text that is not UTF-8.
    pub fn byte_strings(&self) -> Option<impl Iterator<Item = &[u8]>> {
        let fits = self.is_empty() || self.kind() == Some(ValueType::String);
        fits.then(|| Split { rest: &self.bytes, left: self.len })
    }

    /// Each string; bytes that are not UTF-8 become U+FFFD.
    pub fn strings(&self) -> Option<impl Iterator<Item = Cow<'_, str>>> {
        Some(self.byte_strings()?.map(String::from_utf8_lossy))
    }

    /// Each integer; elements may have any integer type.
    pub fn integers(&self) -> Option<impl Iterator<Item = i128>> {
        let decode: fn(&[u8]) -> i128 = match self.kind() {
            _ if self.is_empty() => |_| 0,
            Some(ValueType::U8) => |b| u8::from_le_bytes(fixed(b)).into(),
            Some(ValueType::I8) => |b| i8::from_le_bytes(fixed(b)).into(),
            Some(ValueType::U16) => |b| u16::from_le_bytes(fixed(b)).into(),
            Some(ValueType::I16) => |b| i16::from_le_bytes(fixed(b)).into(),
            Some(ValueType::U32) => |b| u32::from_le_bytes(fixed(b)).into(),
            Some(ValueType::I32) => |b| i32::from_le_bytes(fixed(b)).into(),
            Some(ValueType::U64) => |b| u64::from_le_bytes(fixed(b)).into(),
            Some(ValueType::I64) => |b| i64::from_le_bytes(fixed(b)).into(),
            _ => return None,
        };
        Some(self.elements().map(decode))
    }

    /// Each integer as a `u32`; `None` also where one does not fit.
    pub fn u32s(&self) -> Option<impl Iterator<Item = u32>> {
        self.integers_as(|v| u32::try_from(v).ok())
    }

    /// Each integer as an `i32`; `None` also where one does not fit.
    pub fn i32s(&self) -> Option<impl Iterator<Item = i32>> {
        self.integers_as(|v| i32::try_from(v).ok())
    }

    /// Each integer as a `usize`; `None` also where one does not fit.
    pub fn usizes(&self) -> Option<impl Iterator<Item = usize>> {
        self.integers_as(|v| usize::try_from(v).ok())
    }

    /// Each float; doubles are rounded.
    pub fn f32s(&self) -> Option<impl Iterator<Item = f32>> {
        let decode: fn(&[u8]) -> f32 = match self.kind() {
            _ if self.is_empty() => |_| 0.0,
            Some(ValueType::F32) => |b| f32::from_le_bytes(fixed(b)),
            Some(ValueType::F64) => |b| f64::from_le_bytes(fixed(b)) as f32,
            _ => return None,
        };
        Some(self.elements().map(decode))
    }

    /// Each boolean.
    pub fn bools(&self) -> Option<impl Iterator<Item = bool>> {
        let fits = self.is_empty() || self.kind() == Some(ValueType::Bool);
        fits.then(|| self.elements().map(|b| b != [0]))
    }

    fn integers_as<T>(&self, fit: fn(i128) -> Option<T>) -> Option<impl Iterator<Item = T>> {
        let all_fit = self.integers()?.all(|v| fit(v).is_some());
        all_fit.then(|| self.integers().into_iter().flatten().filter_map(fit))
    }

    /// The encoded elements, of a type of fixed size.
    fn elements(&self) -> impl Iterator<Item = &[u8]> {
        let size = self.kind().and_then(ValueType::fixed_size).unwrap_or(1);
        self.bytes.chunks_exact(size as usize).take(self.len)
    }
}

/// Zero-padded or cut to `N` bytes: never panics, whatever an array built by hand holds.
fn fixed<const N: usize>(bytes: &[u8]) -> [u8; N] {
    std::array::from_fn(|i| bytes.get(i).copied().unwrap_or(0))
}

/// Strings, each a length of 64 bits and its bytes.
struct Split<'a> {
    rest: &'a [u8],
    left: usize,
}

impl<'a> Iterator for Split<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.left = self.left.checked_sub(1)?;
        let (len, rest) = self.rest.split_at_checked(8)?;
        let len = usize::try_from(u64::from_le_bytes(fixed(len))).ok()?;
        let (string, rest) = rest.split_at_checked(len)?;
        self.rest = rest;
        Some(string)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.left))
    }
}

/// Reads an array: element type, count, elements.
pub(super) fn read_array(c: &mut Cursor) -> Parse<Array> {
    let (element_type, len) = read_array_head(c)?;
    let start = c.pos();
    skip_elements(c, element_type, len, 1)?;
    Ok(Array { element_type: element_type.id(), len, bytes: c.since(start).to_vec() })
}

fn read_array_head(c: &mut Cursor) -> Parse<(ValueType, usize)> {
    let element_type = ValueType::read(c)?;
    let len = c.count("array elements", element_type.min_size(), u64::MAX)?;
    Ok((element_type, len))
}

/// Walks over `len` elements, checking all lengths, nested arrays included.
fn skip_elements(c: &mut Cursor, element_type: ValueType, len: usize, depth: usize) -> Parse<()> {
    if let Some(size) = element_type.fixed_size() {
        // The count was bounded by the bytes left, so the product cannot overflow.
        c.take(len as u64 * size)?;
        return Ok(());
    }
    if depth > MAX_DEPTH {
        return Err(c.malformed(c.pos(), format!("arrays nested deeper than {MAX_DEPTH}")).into());
    }
    for _ in 0..len {
        if element_type == ValueType::String {
            c.byte_string()?;
        } else {
            let (inner, n) = read_array_head(c)?;
            skip_elements(c, inner, n, depth + 1)?;
        }
    }
    Ok(())
}
