//! Tools: their declarations, how models write calls, and reading calls and reasoning back from an answer.
//!
//! ```
//! use blueshift::chat::tools::{AnswerFormat, ParseOptions, Tool, ToolFormat, parse_answer};
//! use blueshift::chat::{ChatTemplate, Message, RenderOptions};
//! use serde_json::json;
//! # fn main() -> blueshift::Result<()> {
//! let place = json!({"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]});
//! let options = RenderOptions { tools: vec![Tool::new("weather", "The weather at a place", place)?], ..Default::default() };
//! let template = ChatTemplate::new("{{ tools | tojson }}\n{% for m in messages %}{{ m.content }}\n{% endfor %}", "", "")?;
//! let prompt = template.render(&[Message::new("user", "Is it cold in Oslo?")], &options)?;
//!
//! // For a loaded model: AnswerFormat::detect(Some(&template), &tokenizer).
//! let format = AnswerFormat { tools: Some(ToolFormat::Hermes), reasoning: None };
//! let text = r#"<tool_call>{"name": "weather", "arguments": {"place": "Oslo"}}</tool_call>"#;
//! let answer = parse_answer(text, format, ParseOptions::new(format, &prompt, &options.tools));
//! assert_eq!(answer.tool_calls[0].arguments["place"], "Oslo");
//! // The conversation goes on with answer.message() and Message::tool_result(&answer.tool_calls[0], "-3 degrees").
//! # Ok(())
//! # }
//! ```

mod answer;
mod call;
mod format;
mod functions;
mod gemma;
pub mod grammar;
mod harmony;
mod hermes;
mod llama3;
mod mistral;
mod parser;
mod python;
mod scan;
mod spelled;
mod text;
mod tool;
mod typed;

pub use answer::{Answer, Event, Problem};
pub use format::{AnswerFormat, ToolFormat};
pub use parser::{AnswerParser, ParseOptions, parse_answer};
pub use spelled::spelled_out;
pub(super) use tool::check_distinct;
pub use tool::{Tool, ToolFault};
