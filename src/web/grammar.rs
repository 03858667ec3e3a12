//! What an answer has to look like, as the engine takes it.

use super::json::Shape;
use crate::chat::tools::Tool;
use crate::chat::tools::grammar::{MarkToken, RequiredCalls};
use crate::engine::{ChatPrompt, Engine};
use crate::error::{Error, Result};
use crate::grammar::Grammar;

/// The grammar of a shape.
#[cfg(feature = "grammar")]
pub(super) fn of_shape(shape: Shape) -> Result<Grammar> {
    Ok(match shape {
        Shape::JsonObject => Grammar::JsonObject,
        Shape::JsonSchema(schema) => Grammar::JsonSchema(schema),
        Shape::Regex(regex) => Grammar::Regex(regex),
        Shape::Lark(lark) => Grammar::Lark(lark),
    })
}

/// No grammar: the crate was built without them.
#[cfg(not(feature = "grammar"))]
pub(super) fn of_shape(shape: Shape) -> Result<Grammar> {
    let found = match shape {
        Shape::JsonObject | Shape::JsonSchema(_) => "JSON".into(),
        Shape::Regex(text) | Shape::Lark(text) => text,
    };
    Err(Error::BadOption { option: "grammar", found, expected: "none: this build cannot hold an answer to one" })
}

/// The grammar of an answer that calls one of `tools`, or several where they may be.
///
/// # Errors
/// `BadOption` where there are none, or it is not known how the model writes calls.
pub(super) fn of_calls(engine: &Engine, chat: &ChatPrompt, tools: &[Tool], parallel: bool) -> Result<Grammar> {
    let in_reasoning = chat.parsing.in_reasoning;
    let calls = RequiredCalls { format: chat.format, tools, parallel, in_reasoning };
    match calls.lark(|text| MarkToken::of(engine.tokenizer(), text)) {
        Some(lark) => of_shape(Shape::Lark(lark)),
        None => {
            let found = "a call that must be made".into();
            Err(Error::BadOption { option: "tool choice", found, expected: "auto or none where no such tool is given" })
        }
    }
}
