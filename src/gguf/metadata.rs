//! Typed access to a file's metadata.

use std::borrow::Cow;
use std::collections::HashMap;

use super::array::Array;
use super::cursor::{Cursor, Parse};
use super::value::Value;
use crate::error::{Error, Result};

/// Longest key, in bytes (the specification's limit).
const MAX_KEY_BYTES: usize = 65_535;
/// Most layers a per-layer value is expanded to.
const MAX_LAYERS: usize = 65_536;
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

    /// Like `usize_per_layer`, `None` where the key is missing or its array is empty.
    pub fn opt_usize_per_layer(&self, key: &str, n_layers: usize) -> Result<Option<Vec<usize>>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let expanded = match value {
            Value::Array(array) if array.is_empty() => return Ok(None),
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

#[cfg(test)]
mod tests {
    use super::super::value::ValueType;
    use super::*;

    fn array(kind: ValueType, len: usize, bytes: &[u8]) -> Value {
        Value::Array(Array { element_type: kind.id(), len, bytes: bytes.into() })
    }

    fn sample() -> Metadata {
        let mut m = Metadata::default();
        m.insert("uint", Value::Uint(300));
        m.insert("int", Value::Int(300));
        m.insert("negative", Value::Int(-1));
        m.insert("huge", Value::Uint(1 << 32));
        m.insert("double", Value::F64(0.5));
        m.insert("nan", Value::F32(f32::NAN));
        m.insert("text", Value::String("é".repeat(50)));
        m.insert("u16s", array(ValueType::U16, 2, &[1, 0, 0xff, 0xff]));
        m.insert("i8s", array(ValueType::I8, 2, &[1, 0xff]));
        m.insert("bools", array(ValueType::Bool, 2, &[0, 1]));
        m.insert("empty", array(ValueType::String, 0, &[]));
        m
    }

    #[test]
    fn integers_of_any_width() {
        let m = sample();
        let cases: [(&str, Option<u32>); 6] = [
            ("uint", Some(300)),
            ("int", Some(300)),
            ("negative", None),
            ("huge", None),
            ("double", None),
            ("text", None),
        ];
        for (key, expected) in cases {
            assert_eq!(m.u32(key).ok(), expected, "{key}");
            assert_eq!(m.usize(key).ok(), m.u64(key).ok().map(|v| v as usize), "{key}");
        }
        assert_eq!(m.u64("huge").ok(), Some(1 << 32));
    }

    #[test]
    fn missing_and_wrong() {
        let m = sample();
        assert!(matches!(m.f32("none"), Err(Error::MissingKey { .. })));
        assert!(matches!(m.opt_f32("none"), Ok(None)));
        assert!(matches!(m.opt_f32("nan"), Err(Error::BadValue { .. })));
        assert_eq!(m.f32("double").ok(), Some(0.5));
        let error = m.opt_bool("text").expect_err("text is no boolean").to_string();
        assert!(error.contains("é\"..., expected a boolean"), "{error}");
    }

    #[test]
    fn arrays_by_kind() {
        let m = sample();
        let u32s = |key| m.u32s(key).ok().map(Vec::from_iter);
        let i32s = |key| m.i32s(key).ok().map(Vec::from_iter);
        assert_eq!(u32s("u16s"), Some(vec![1, 65_535]));
        assert_eq!(u32s("i8s"), None);
        assert_eq!(i32s("i8s"), Some(vec![1, -1]));
        assert_eq!(u32s("bools"), None);
        assert_eq!(m.bools("bools").ok().map(Vec::from_iter), Some(vec![false, true]));
        assert_eq!((u32s("empty"), i32s("empty")), (Some(vec![]), Some(vec![])));
        assert_eq!(m.f32s("empty").ok().map(Iterator::count), Some(0));
        assert!(m.f32s("u16s").is_err());
        assert!(m.strings("u16s").is_err());
    }

    #[test]
    fn per_layer_values() {
        let m = sample();
        assert_eq!(m.usize_per_layer("uint", 3).ok(), Some(vec![300; 3]));
        assert_eq!(m.usize_per_layer("u16s", 2).ok(), Some(vec![1, 65_535]));
        assert!(m.usize_per_layer("u16s", 3).is_err());
        assert!(m.usize_per_layer("i8s", 2).is_err());
        assert!(m.usize_per_layer("uint", usize::MAX).is_err());
        for absent in ["none", "empty"] {
            assert!(matches!(m.opt_usize_per_layer(absent, 2), Ok(None)), "{absent}");
        }
    }

    #[test]
    fn arrays_built_by_hand_do_not_panic() {
        let short = Array { element_type: ValueType::String.id(), len: 1 << 40, bytes: vec![255; 9] };
        assert_eq!(short.strings().map(Iterator::count), Some(0));
        let unknown = Array { element_type: 77, len: 3, bytes: vec![] };
        assert!(unknown.u32s().is_none());
    }
}
