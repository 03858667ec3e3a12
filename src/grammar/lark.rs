//! What a Lark text is checked for before the parser sees it. The parser's own compiler is recursive, and trusts schemas inside the text.

use serde_json::Value;

use super::{check_levels, error, schema};
use crate::error::{GrammarFault, Result};

/// Checks the depth to which rules can lead, their attributes, and the JSON that stands in the text.
pub(super) fn check(text: &str) -> Result<()> {
    let mut levels = 0;
    let mut at = 0;
    while let Some(byte) = text.as_bytes().get(at) {
        let rest = &text.as_bytes()[at..];
        at += match byte {
            b'"' => quoted(rest, b'"'),
            b'#' => line(rest),
            b'/' if rest.get(1) == Some(&b'/') => line(rest),
            b'/' => quoted(rest, b'/'),
            b'%' => directive(&text[at..])?,
            b'_' | b'a'..=b'z' | b'A'..=b'Z' => word(rest)?,
            b':' if rest.get(1) == Some(&b':') => {
                return Err(error(GrammarFault::Unsupported, "rules with parameters (::)"));
            }
            // Definitions and brackets are what the compiler descends into.
            b':' | b'(' | b'[' => {
                levels += 1;
                1
            }
            _ => 1,
        };
    }
    check_levels(levels)
}

/// Length of what stands between two quotes, both included.
fn quoted(text: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while let Some(byte) = text.get(at) {
        match byte {
            b'\\' => at += 1,
            byte if *byte == quote => return at + 1,
            _ => {}
        }
        at += 1;
    }
    text.len()
}

/// Length of the rest of a line.
fn line(text: &[u8]) -> usize {
    text.iter().position(|byte| *byte == b'\n').unwrap_or(text.len())
}

/// Length of a name, which must not be an attribute that takes text back.
fn word(text: &[u8]) -> Result<usize> {
    let is_part = |byte: &u8| *byte == b'_' || byte.is_ascii_alphanumeric();
    let len = text.iter().take_while(|byte| is_part(byte)).count();
    if &text[..len] == b"stop" && text[len..].trim_ascii_start().first() == Some(&b'=') {
        return Err(error(GrammarFault::Unsupported, "stop= takes text back that was drawn; suffix= keeps it"));
    }
    Ok(len)
}

/// Length of a directive with its JSON, which is checked.
fn directive(text: &str) -> Result<usize> {
    let Some(name) = ["%json", "%llguidance", "%regex"].into_iter().find(|name| text.starts_with(name)) else {
        return Ok(1);
    };
    let mut values = serde_json::Deserializer::from_str(&text[name.len()..]).into_iter::<Value>();
    // What is no JSON is left to the parser, which knows the line.
    let Some(Ok(value)) = values.next() else { return Ok(name.len()) };
    match name {
        "%json" => schema::check(&value)?,
        "%llguidance" if value.get("allow_invalid_utf8").and_then(Value::as_bool) == Some(true) => {
            return Err(error(GrammarFault::Unsupported, "allow_invalid_utf8: answers are UTF-8"));
        }
        _ => {}
    }
    Ok(name.len() + values.byte_offset())
}
