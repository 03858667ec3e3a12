//! Typed access to a file's metadata.

use std::collections::HashMap;

use crate::error::{Error, Result};

/// A metadata value. Numbers keep their own type, arrays stay encoded until read.
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
    /// UTF-8 text.
    String(String),
    /// An array.
    Array(Array),
}

/// An array in the file's own encoding (little-endian), decoded as it is read.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Array {
    /// GGUF's code of the elements' type.
    pub element_type: u32,
    /// Number of elements.
    pub len: usize,
    /// The elements, encoded, validated when the file was opened.
    pub bytes: Vec<u8>,
}

/// Key-value pairs of a file.
#[derive(Debug, Clone, Default)]
pub struct Metadata {
    keys: Vec<String>,
    values: HashMap<String, Value>,
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

    fn require(&self, key: &str, expected: &'static str) -> Result<&Value> {
        self.get(key).ok_or_else(|| Error::MissingKey { key: key.into(), expected })
    }
}
