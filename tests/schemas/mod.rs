//! JSON schemas, and whether a text is valid under one.

use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) schema: Value,
}

pub(crate) fn cases() -> Vec<Case> {
    let lines = include_str!("../data/grammar/schemas.jsonl").lines();
    let cases: Vec<Case> = lines.map(|line| serde_json::from_str(line).expect("a case")).collect();
    assert!(cases.len() >= 100);
    cases
}

/// Why a text is not valid under a schema.
pub(crate) fn fault(schema: &Value, bytes: &[u8]) -> Option<String> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(e) => return Some(format!("{e}: {bytes:?}")),
    };
    let value: Value = match serde_json::from_str(text) {
        Ok(value) => value,
        // JSON bounds no exponent, numbers of 64 bits do.
        Err(e) if e.to_string().contains("out of range") => {
            return serde_json::from_str::<serde::de::IgnoredAny>(text).err().map(|e| e.to_string());
        }
        Err(e) => return Some(format!("{e}: {text}")),
    };
    let validator = jsonschema::options().should_validate_formats(true).build(schema).expect("a valid schema");
    validator.validate(&value).err().map(|e| format!("{e}: {text}"))
}
