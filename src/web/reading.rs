//! A request's prompt, and its answer taken apart as it comes.

use wasm_bindgen::JsValue;

use super::error::to_js;
use super::grammar;
use super::json::{self, Part, Shape, ToolChoice};
use crate::chat::tools::{self, Answer, AnswerFormat, AnswerParser, ParseOptions, Tool};
use crate::engine::{ChatPrompt, Engine, GenerateOptions, Policy};
use crate::error::Result;

/// Reads an answer as it comes.
pub(super) struct Reading {
    parser: AnswerParser,
    answer: Answer,
}

impl Reading {
    /// Of an answer to a conversation, or of one that is all content.
    fn new(chat: Option<&ChatPrompt>) -> Self {
        let plain = || AnswerParser::new(AnswerFormat::default(), ParseOptions::default());
        Self { parser: chat.map_or_else(plain, ChatPrompt::parser), answer: Answer::default() }
    }

    /// What has become known with `text`.
    pub(super) fn push(&mut self, text: &str) -> Vec<Part> {
        let events = self.parser.push(text);
        self.take(events)
    }

    /// What is left at the end.
    pub(super) fn finish(&mut self) -> Vec<Part> {
        let events = self.parser.finish();
        self.take(events)
    }

    /// What was read so far.
    pub(super) fn answer(&self) -> &Answer {
        &self.answer
    }

    fn take(&mut self, events: Vec<tools::Event>) -> Vec<Part> {
        let mut parts = Vec::new();
        for event in events {
            self.answer.add(event.clone());
            match event {
                tools::Event::Content(text) => parts.push(Part::Content { text }),
                tools::Event::Reasoning(text) => parts.push(Part::Reasoning { text }),
                tools::Event::ToolCallStart { .. } | tools::Event::ToolCallArguments { .. } => {}
                tools::Event::ToolCallEnd { index } => {
                    parts.extend(self.answer.tool_calls.get(index).map(|call| Part::ToolCall { call: call.into() }))
                }
                tools::Event::Problem(problem) => parts.push(Part::Problem { problem: problem.to_string() }),
            }
        }
        parts
    }
}

/// A request as the engine takes it.
pub(super) struct Asked {
    pub(super) ids: Vec<u32>,
    pub(super) options: GenerateOptions,
    pub(super) reading: Reading,
}

impl Asked {
    /// Reads a request: its prompt is a [`json::Prompt`]. Where the engine has one sequence, it has a policy.
    pub(super) fn new(
        engine: &Engine,
        prompt: &str,
        mut options: json::Generate,
        policy: Option<Policy>,
    ) -> Result<Self, JsValue> {
        let prompt: json::Prompt = json::read(prompt)?;
        let shape = options.shape.take();
        let options = GenerateOptions { policy, ..options.into() };
        Self::of_prompt(engine, prompt, shape, options).map_err(to_js)
    }

    fn of_prompt(
        engine: &Engine,
        prompt: json::Prompt,
        shape: Option<Shape>,
        mut options: GenerateOptions,
    ) -> Result<Self> {
        options.grammar = shape.map(grammar::of_shape).transpose()?;
        let Some(messages) = &prompt.messages else {
            return Ok(Self { ids: engine.raw_prompt(&prompt.text), options, reading: Reading::new(None) });
        };
        let tools: Vec<Tool> = match prompt.tool_choice {
            ToolChoice::None => Vec::new(),
            _ => prompt.tools.iter().map(Tool::from_json).collect::<Result<_>>()?,
        };
        let chat = engine.chat(messages, &tools)?;
        chat.apply(&mut options);
        match &prompt.tool_choice {
            ToolChoice::None | ToolChoice::Auto => {}
            ToolChoice::Required => options.grammar = Some(grammar::of_calls(engine, &chat, &tools, true)?),
            ToolChoice::Name(name) => {
                let one: Vec<_> = tools.iter().filter(|tool| tool.name() == name).cloned().collect();
                options.grammar = Some(grammar::of_calls(engine, &chat, &one, false)?);
            }
        }
        Ok(Self { ids: chat.ids.clone(), options, reading: Reading::new(Some(&chat)) })
    }
}
