//! Typed access to a file's metadata.

use std::borrow::Cow;
use std::collections::HashMap;

use super::array::{Array, read_array};
use super::cursor::{Cursor, Parse};
use crate::error::{Error, Result};

/// Longest key, in bytes (the specification's limit).
const MAX_KEY_BYTES: usize = 65_535;
/// Most layers a per-layer value is expanded to.
const MAX_LAYERS: usize = 65_536;
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

    fn read(c: &mut Cursor) -> Parse<Self> {
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

/// Key-value pairs of a file.
///
/// Each accessor has an `opt_` twin that gives `None` where the key is missing. Both fail with `BadValue` where the
/// value has another type; the plain ones fail with `MissingKey` where there is none. Integers of any width are
/// accepted where they fit.
#[derive(Debug, Clone, Default)]
pub struct Metadata {
    keys: Vec<String>,
    values: HashMap<String, Value>,
}

/// A plain accessor and its `opt_` twin.
macro_rules! accessors {
    ($($(#[$doc:meta])* $name:ident, $opt:ident -> $type:ty, $expected:literal, $convert:expr;)*) => {$(
        $(#[$doc])*
        pub fn $name(&self, key: &str) -> Result<$type> {
            self.$opt(key)?.ok_or_else(|| Error::MissingKey { key: key.into(), expected: $expected })
        }

        $(#[$doc])*
        pub fn $opt(&self, key: &str) -> Result<Option<$type>> {
            self.convert(key, $expected, $convert)
        }
    )*};
}

impl Metadata {
    /// Adds or replaces a pair.
    pub fn insert(&mut self, key: impl Into<String>, value: Value) {
        let key = key.into();
        if self.values.insert(key.clone(), value).is_none() {
            self.keys.push(key);
        }
    }

    /// The pairs in the file's order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.keys.iter().map(|k| (k.as_str(), &self.values[k]))
    }

    /// The value of `key`, if present.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    accessors! {
        /// An integer of 32 bits.
        u32, opt_u32 -> u32, "an integer of 0 to 2^32 - 1", |v| v.as_u64().and_then(|v| v.try_into().ok());
        /// An integer of 64 bits.
        u64, opt_u64 -> u64, "an integer of 0 to 2^64 - 1", |v| v.as_u64();
        /// A count or a size.
        usize, opt_usize -> usize, "a count", |v| v.as_u64().and_then(|v| v.try_into().ok());
        /// A finite float; doubles are rounded.
        f32, opt_f32 -> f32, "a finite float", |v| v.as_f32();
        /// A boolean.
        bool, opt_bool -> bool, "a boolean", |v| match v { Value::Bool(v) => Some(*v), _ => None };
        /// Text.
        str, opt_str -> &str, "a string", |v| match v { Value::String(v) => Some(v.as_str()), _ => None };
        /// An array of any kind.
        array, opt_array -> &Array, "an array", |v| v.as_array();
        /// An array's strings, as bytes: token lists may hold text that is not UTF-8.
        byte_strings, opt_byte_strings -> impl Iterator<Item = &[u8]> + use<'_>, "an array of strings",
            |v| v.as_array()?.byte_strings();
        /// An array's strings; bytes that are not UTF-8 become U+FFFD.
        strings, opt_strings -> impl Iterator<Item = Cow<'_, str>> + use<'_>, "an array of strings",
            |v| v.as_array()?.strings();
        /// An array's integers, which all fit.
        u32s, opt_u32s -> impl Iterator<Item = u32> + use<'_>, "an array of integers of 0 to 2^32 - 1",
            |v| v.as_array()?.u32s();
        /// An array's integers, which all fit.
        i32s, opt_i32s -> impl Iterator<Item = i32> + use<'_>, "an array of integers of 32 bits",
            |v| v.as_array()?.i32s();
        /// An array's floats; doubles are rounded.
        f32s, opt_f32s -> impl Iterator<Item = f32> + use<'_>, "an array of floats", |v| v.as_array()?.f32s();
        /// An array's booleans.
        bools, opt_bools -> impl Iterator<Item = bool> + use<'_>, "an array of booleans", |v| v.as_array()?.bools();
    }

    /// One count a layer: the file holds one for all, or an array with one for each.
    ///
    /// # Errors
    /// `MissingKey`, and `BadValue` also where an array has another length than `n_layers`.
    pub fn usize_per_layer(&self, key: &str, n_layers: usize) -> Result<Vec<usize>> {
        self.opt_usize_per_layer(key, n_layers)?
            .ok_or_else(|| Error::MissingKey { key: key.into(), expected: "a count, or a count for each layer" })
    }

    /// Like `usize_per_layer`, `None` where the key is missing.
    pub fn opt_usize_per_layer(&self, key: &str, n_layers: usize) -> Result<Option<Vec<usize>>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let expanded = match value {
            Value::Array(array) if array.len == n_layers => array.usizes().map(Iterator::collect),
            Value::Array(_) => None,
            scalar if n_layers <= MAX_LAYERS => {
                let count = scalar.as_u64().and_then(|v| usize::try_from(v).ok());
                count.map(|count| vec![count; n_layers])
            }
            _ => None,
        };
        let expected = || format!("a count, or an array of {n_layers} counts (at most {MAX_LAYERS} layers)");
        expanded.map(Some).ok_or_else(|| bad_value(key, value.describe(), expected()))
    }

    fn convert<'a, T>(
        &'a self,
        key: &str,
        expected: &'static str,
        convert: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        convert(value).map(Some).ok_or_else(|| bad_value(key, value.describe(), expected))
    }
}

fn bad_value(key: &str, found: String, expected: impl Into<String>) -> Error {
    Error::BadValue { key: key.into(), found, expected: expected.into() }
}

/// Reads `n` pairs. Keys must differ.
pub(super) fn read_metadata(c: &mut Cursor, n: usize) -> Parse<Metadata> {
    let mut metadata = Metadata::default();
    for _ in 0..n {
        let at = c.pos();
        let key = c.identifier("key", MAX_KEY_BYTES)?;
        if metadata.get(key).is_some() {
            return Err(c.malformed(at, format!("key {key:?} appears twice")).into());
        }
        metadata.insert(key, Value::read(c)?);
    }
    Ok(metadata)
}
