//! Constrained output: which tokens may come next so that the text fits a JSON schema, a regular expression or a Lark grammar.
//!
//! A [`GrammarEnv`] is built once a tokenizer, a [`Constraint`] once a sequence. A step is: [`Constraint::mask`], a draw under the mask
//! ([`sample::draw`](crate::sample::draw)), [`Constraint::accept`]. The parser is the crate `llguidance`; what it cannot be trusted with is
//! checked before (shapes, sizes, depth) or caught behind it, so that every refusal is an [`Error::Grammar`].

mod constraint;
mod env;
mod fault;
mod lark;
mod schema;
#[cfg(test)]
mod tests;

pub use constraint::Constraint;
pub use env::GrammarEnv;

use llguidance::JsonCompileOptions;
use llguidance::api::TopLevelGrammar;
use serde_json::Value;

use crate::error::{Error, GrammarFault, Result};

/// Most bytes of a grammar's text, or of a schema's keys and strings.
pub const MAX_GRAMMAR_BYTES: usize = 1 << 20;
/// Deepest chain of nested parts and definitions. In a browser the stack is small.
const MAX_LEVELS: usize = if cfg!(target_arch = "wasm32") { 96 } else { 4096 };
/// White space between the parts of a JSON text: at most one end of line, and what is indented behind it. Without a bound a model could
/// write blanks for ever.
const JSON_WHITE_SPACE: &str = r"(\r?\n[ \t]{0,64})|[ \t]{1,4}";

/// What a text has to look like.
#[derive(Debug, Clone, PartialEq)]
pub enum Grammar {
    /// JSON that is valid under a JSON schema; docs/grammar.md lists the keywords.
    JsonSchema(Value),
    /// Any JSON object.
    JsonObject,
    /// A text that a regular expression matches as a whole, in the syntax of the crate `regex`.
    Regex(String),
    /// A text of the rule `start` of a grammar in llguidance's variant of Lark.
    Lark(String),
}

impl Grammar {
    /// A JSON schema from its text.
    ///
    /// # Errors
    /// [`Error::Grammar`] with [`GrammarFault::MalformedJson`], line and column, where the text is not JSON.
    pub fn json_schema(text: &str) -> Result<Self> {
        check_bytes(text.len())?;
        let schema = serde_json::from_str(text).map_err(|e| error(GrammarFault::MalformedJson, e.to_string()))?;
        Ok(Self::JsonSchema(schema))
    }

    /// The grammar in the parser's terms.
    fn compiled(&self) -> Result<TopLevelGrammar> {
        match self {
            Self::JsonSchema(schema) => json(schema::checked(schema)?),
            Self::JsonObject => json(serde_json::json!({ "type": "object" })),
            Self::Regex(regex) => {
                check_bytes(regex.len())?;
                check_regex(regex)?;
                // An empty pattern between Lark's slashes would begin a comment.
                let empty = || TopLevelGrammar::from_lark("start: \"\"".into());
                Ok(if regex.is_empty() { empty() } else { TopLevelGrammar::from_regex(regex) })
            }
            Self::Lark(text) => {
                check_bytes(text.len())?;
                lark::check(text)?;
                Ok(TopLevelGrammar::from_lark(text.clone()))
            }
        }
    }
}

fn json(mut schema: Value) -> Result<TopLevelGrammar> {
    let options = JsonCompileOptions { whitespace_pattern: Some(JSON_WHITE_SPACE.into()), ..Default::default() };
    options.apply_to(&mut schema);
    Ok(TopLevelGrammar::from_json_schema(schema))
}

fn error(fault: GrammarFault, reason: impl Into<String>) -> Error {
    Error::Grammar { fault, reason: reason.into() }
}

fn check_bytes(bytes: usize) -> Result<()> {
    if bytes > MAX_GRAMMAR_BYTES {
        return Err(error(GrammarFault::TooComplex, format!("{bytes} bytes, expected at most {MAX_GRAMMAR_BYTES}")));
    }
    Ok(())
}

/// Bounds how deep the compiler can descend: the levels of all definitions together, as if each led to the next.
fn check_levels(levels: usize) -> Result<()> {
    if levels > MAX_LEVELS {
        let reason = format!("definitions have {levels} levels together, expected at most {MAX_LEVELS}");
        return Err(error(GrammarFault::TooComplex, reason));
    }
    Ok(())
}

/// The parser drops a backslash at the end.
fn check_regex(regex: &str) -> Result<()> {
    let n_backslashes = regex.bytes().rev().take_while(|byte| *byte == b'\\').count();
    if n_backslashes % 2 == 1 {
        return Err(error(GrammarFault::BadRegex, "it ends with a backslash that escapes nothing"));
    }
    Ok(())
}
