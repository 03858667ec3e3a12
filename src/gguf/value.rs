//! A metadata value and its types.

use super::array::{Array, read_array};
use super::cursor::{Cursor, Parse};

/// Characters of a string shown in an error.
const SHOWN_CHARS: usize = 40;

/// GGUF's types of metadata values; the discriminants are its codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum ValueType {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Bool = 7,
    String = 8,
    Array = 9,
    U64 = 10,
    I64 = 11,
    F64 = 12,
}

/// Every type, its name and its size in bytes; 0 where the size varies.
const VALUE_TYPES: [(ValueType, &str, u64); 13] = [
    (ValueType::U8, "u8", 1),
    (ValueType::I8, "i8", 1),
    (ValueType::U16, "u16", 2),
    (ValueType::I16, "i16", 2),
    (ValueType::U32, "u32", 4),
    (ValueType::I32, "i32", 4),
    (ValueType::F32, "f32", 4),
    (ValueType::Bool, "booleans", 1),
    (ValueType::String, "strings", 0),
    (ValueType::Array, "arrays", 0),
    (ValueType::U64, "u64", 8),
    (ValueType::I64, "i64", 8),
    (ValueType::F64, "f64", 8),
];

impl ValueType {
    pub(super) fn id(self) -> u32 {
        self as u32
    }

    pub(super) fn from_id(id: u32) -> Option<Self> {
        VALUE_TYPES.get(id as usize).map(|t| t.0)
    }

    pub(super) fn name(self) -> &'static str {
        VALUE_TYPES[self as usize].1
    }

    /// Bytes of a value, where they do not depend on it.
    pub(super) fn fixed_size(self) -> Option<u64> {
        Some(VALUE_TYPES[self as usize].2).filter(|size| *size > 0)
    }

    /// Fewest bytes a value takes.
    pub(super) fn min_size(self) -> u64 {
        match self {
            Self::String => 8,
            Self::Array => 12,
            fixed => VALUE_TYPES[fixed as usize].2,
        }
    }

    pub(super) fn read(c: &mut Cursor) -> Parse<Self> {
        let at = c.pos();
        let id = c.u32()?;
        Self::from_id(id).ok_or_else(|| c.malformed(at, format!("value type {id}, expected 0 to 12")).into())
    }
}

/// A metadata value. Integers are widened, arrays stay encoded until read.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// An unsigned integer of 8 to 64 bits.
    Uint(u64),
    /// A signed integer of 8 to 64 bits.
    Int(i64),
    /// A float of 32 bits.
    F32(f32),
    /// A float of 64 bits.
    F64(f64),
    /// A boolean.
    Bool(bool),
    /// Text; bytes that are not UTF-8 have become U+FFFD.
    String(String),
    /// An array.
    Array(Array),
}

impl Value {
    /// Text for error messages, with long strings cut.
    pub fn describe(&self) -> String {
        match self {
            Self::Uint(v) => v.to_string(),
            Self::Int(v) => v.to_string(),
            Self::F32(v) => format!("{v:?}"),
            Self::F64(v) => format!("{v:?}"),
            Self::Bool(v) => v.to_string(),
            Self::String(v) => match v.char_indices().nth(SHOWN_CHARS) {
                Some((end, _)) => format!("the string {:?}...", &v[..end]),
                None => format!("the string {v:?}"),
            },
            Self::Array(v) => v.describe(),
        }
    }

    /// The value as a `u64`, where it is an integer that fits.
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Self::Uint(v) => Some(v),
            Self::Int(v) => u64::try_from(v).ok(),
            _ => None,
        }
    }

    /// The value as a finite `f32`, where it is a float.
    pub fn as_f32(&self) -> Option<f32> {
        match *self {
            Self::F32(v) => Some(v),
            Self::F64(v) => Some(v as f32),
            _ => None,
        }
        .filter(|v| v.is_finite())
    }

    /// The value, where it is an array.
    pub fn as_array(&self) -> Option<&Array> {
        match self {
            Self::Array(v) => Some(v),
            _ => None,
        }
    }

    pub(super) fn read(c: &mut Cursor) -> Parse<Self> {
        Ok(match ValueType::read(c)? {
            ValueType::U8 => Self::Uint(c.u8()?.into()),
            ValueType::I8 => Self::Int((c.u8()? as i8).into()),
            ValueType::U16 => Self::Uint(c.u16()?.into()),
            ValueType::I16 => Self::Int((c.u16()? as i16).into()),
            ValueType::U32 => Self::Uint(c.u32()?.into()),
            ValueType::I32 => Self::Int((c.u32()? as i32).into()),
            ValueType::F32 => Self::F32(f32::from_bits(c.u32()?)),
            ValueType::Bool => Self::Bool(c.u8()? != 0),
            ValueType::String => Self::String(String::from_utf8_lossy(c.byte_string()?).into_owned()),
            ValueType::Array => Self::Array(read_array(c)?),
            ValueType::U64 => Self::Uint(c.u64()?),
            ValueType::I64 => Self::Int(c.u64()? as i64),
            ValueType::F64 => Self::F64(f64::from_bits(c.u64()?)),
        })
    }
}
