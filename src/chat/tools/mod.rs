//! Tools: their declarations, how models write calls, and reading calls and reasoning back from an answer.

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
