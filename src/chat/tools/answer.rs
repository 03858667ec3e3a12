//! What an answer is made of.

use serde_json::Value;

use crate::chat::message::{Message, ToolCall};

/// A part of an answer, as it becomes known.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Text for the reader.
    Content(String),
    /// What the model thinks.
    Reasoning(String),
    /// A call begins.
    ToolCallStart {
        /// Number of the call in the answer, from 0.
        index: usize,
        /// Its name in the conversation.
        id: String,
        /// The tool.
        name: String,
    },
    /// The arguments of a call, whole: calls are only told once they are known to be sound.
    ToolCallArguments {
        /// Number of the call.
        index: usize,
        /// An object as JSON text.
        arguments: String,
    },
    /// A call is complete.
    ToolCallEnd {
        /// Number of the call.
        index: usize,
    },
    /// Something looked like a call and is none. Its text is in the content.
    Problem(Problem),
}

/// Why something that looked like a call is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// It is not written as calls are.
    #[error("a call is malformed: {reason}")]
    Malformed {
        /// What was found.
        reason: String,
    },
    /// The answer ended inside it.
    #[error("the answer ends inside a call")]
    Unfinished,
    /// It names no tool.
    #[error("a call names no tool")]
    NoName,
    /// It names a tool that was not offered.
    #[error("a call names the tool {name:?}, which was not offered")]
    UnknownTool {
        /// The name.
        name: String,
    },
    /// Its arguments are not an object.
    #[error("the arguments of a call of {name:?} are {found}, expected an object")]
    BadArguments {
        /// The tool.
        name: String,
        /// What they are.
        found: String,
    },
}

/// A whole answer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Answer {
    /// What the model thought.
    pub reasoning: String,
    /// Text for the reader.
    pub content: String,
    /// Calls, in order.
    pub tool_calls: Vec<ToolCall>,
    /// What looked like calls and is none, in order.
    pub problems: Vec<Problem>,
}

impl Answer {
    /// Takes up a part.
    pub fn add(&mut self, event: Event) {
        match event {
            Event::Content(text) => self.content += &text,
            Event::Reasoning(text) => self.reasoning += &text,
            Event::ToolCallStart { id, name, .. } => {
                self.tool_calls.push(ToolCall { id, name, arguments: Default::default() })
            }
            Event::ToolCallArguments { index, arguments } => {
                if let (Some(call), Ok(Value::Object(map))) =
                    (self.tool_calls.get_mut(index), serde_json::from_str(&arguments))
                {
                    call.arguments = map;
                }
            }
            Event::ToolCallEnd { .. } => {}
            Event::Problem(problem) => self.problems.push(problem),
        }
    }

    /// The answer as the assistant's message, for the conversation to go on.
    pub fn message(&self) -> Message {
        let reasoning_content = (!self.reasoning.is_empty()).then(|| self.reasoning.clone());
        Message { reasoning_content, tool_calls: self.tool_calls.clone(), ..Message::new("assistant", &*self.content) }
    }
}
