//! Conversations to prompts, with the Jinja template that the model's file carries.

mod date;
mod dialect;
mod json;
mod message;
mod python;
pub mod reasoning;
pub mod tools;

pub use message::{Message, ToolCall};

use std::sync::OnceLock;

use minijinja::value::{Kwargs, Value};
use minijinja::{Environment, ErrorKind, context};

use crate::error::{Error, Result};
use crate::gguf::Metadata;

use dialect::Dialect;
use tools::{Tool, check_distinct};

const TEMPLATE: &str = "tokenizer.chat_template";

/// What a template is told beside the messages.
#[derive(Debug, Clone, PartialEq)]
pub struct RenderOptions {
    /// Ends the prompt with the beginning of the assistant's reply. True by default.
    pub add_generation_prompt: bool,
    /// Tools the model may call. None by default. Templates that [know no tools](ChatTemplate::knows_tools) leave them out.
    pub tools: Vec<Tool>,
    /// The moment that `strftime_now` prints, in seconds since 1970 and shifted to local time. Without one, templates
    /// are told that there is no clock and print a date of their own or none.
    pub now: Option<i64>,
    /// Further variables, for example `enable_thinking`.
    pub variables: serde_json::Map<String, serde_json::Value>,
}

impl Default for RenderOptions {
    fn default() -> Self {
        Self { add_generation_prompt: true, tools: Vec::new(), now: None, variables: serde_json::Map::new() }
    }
}

/// Steps a template may take: far more than a long conversation needs, and an end to one that loops.
const FUEL: u64 = 20_000_000;

/// A file's chat template, checked to be Jinja.
#[derive(Debug)]
pub struct ChatTemplate {
    source: String,
    bos: String,
    eos: String,
    /// Found out with the first conversation that has calls or reasoning.
    dialect: OnceLock<Dialect>,
}

impl ChatTemplate {
    /// The template of a file, `None` where it has none.
    ///
    /// # Errors
    /// `Template` where it is not Jinja; `BadValue` where a key has another type.
    pub fn from_metadata(metadata: &Metadata) -> Result<Option<Self>> {
        let Some(source) = metadata.opt_str(TEMPLATE)? else { return Ok(None) };
        let bos = token_text(metadata, "tokenizer.ggml.bos_token_id")?;
        let eos = token_text(metadata, "tokenizer.ggml.eos_token_id")?;
        Self::new(source, &bos, &eos).map(Some)
    }

    /// A template from its source and the texts of the tokens that begin and end a sequence.
    ///
    /// # Errors
    /// `Template` where it is not Jinja.
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<Self> {
        let template =
            Self { source: without_training_marks(source), bos: bos.into(), eos: eos.into(), dialect: OnceLock::new() };
        environment(None).template_from_str(&template.source).map_err(template_error)?;
        Ok(template)
    }

    /// The template's text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether the template reads tools. For one that does not, [`tools::spelled_out`] puts them into the messages.
    pub fn knows_tools(&self) -> bool {
        self.source.contains("tools")
    }

    /// The prompt for a conversation.
    ///
    /// # Errors
    /// `Template` where the template fails or refuses the conversation; its message is in the reason. `BadTool` where two tools have the
    /// same name.
    pub fn render(&self, messages: &[Message], options: &RenderOptions) -> Result<String> {
        check_distinct(&options.tools)?;
        let messages: Vec<_> = messages.iter().map(|message| self.dialect(message).message(message)).collect();
        self.render_json(&messages, options)
    }

    /// How the template wants `message`. Plain ones are the same for all.
    fn dialect(&self, message: &Message) -> Dialect {
        if message.tool_calls.is_empty() && message.reasoning_content.is_none() {
            return Dialect { text_arguments: false, thinking: false };
        }
        let render = |messages: &serde_json::Value| {
            let options = RenderOptions { add_generation_prompt: false, now: Some(0), ..RenderOptions::default() };
            self.render_json(messages.as_array()?, &options).ok()
        };
        *self.dialect.get_or_init(|| Dialect::of(&self.source, render))
    }

    fn render_json(&self, messages: &[serde_json::Value], options: &RenderOptions) -> Result<String> {
        let environment = environment(options.now);
        let template = environment.template_from_str(&self.source).map_err(template_error)?;
        let tools = if options.tools.is_empty() { Value::from(()) } else { Value::from_serialize(&options.tools) };
        let known = context! {
            messages => messages,
            add_generation_prompt => options.add_generation_prompt,
            bos_token => self.bos,
            eos_token => self.eos,
            tools => tools,
            documents => (),
        };
        let variables = Value::from_serialize(&options.variables);
        template.render(context! { ..variables, ..known }).map_err(template_error)
    }
}

/// Text of the token whose id is under `key`; empty where there is none.
fn token_text(metadata: &Metadata, key: &str) -> Result<String> {
    let Some(id) = metadata.opt_usize(key)? else { return Ok(String::new()) };
    let text = metadata.byte_strings("tokenizer.ggml.tokens")?.nth(id).unwrap_or_default();
    Ok(String::from_utf8_lossy(text).into_owned())
}

/// Jinja as templates expect it: Python's methods, blocks that take their line's white space with them.
fn environment(now: Option<i64>) -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_fuel(Some(FUEL));
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    python::install(&mut environment);
    environment.add_filter("tojson", json::tojson);
    environment.add_function("raise_exception", |message: String| -> Result<Value, minijinja::Error> {
        Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
    });
    if let Some(now) = now {
        environment.add_function("strftime_now", move |format: String, _: Kwargs| date::strftime(now, &format));
    }
    environment
}

/// Takes out `{% generation %}` and its end, which mark text to train on and print nothing.
fn without_training_marks(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((before, block)) = rest.split_once("{%") {
        out.push_str(before);
        let Some((inside, after)) = block.split_once("%}") else {
            rest = &rest[before.len()..];
            break;
        };
        let name = inside.trim_start_matches(['-', '+']).trim_end_matches(['-', '+']).trim();
        let plain = match name {
            "generation" => inside.replace("generation", "if true"),
            "endgeneration" => inside.replace("endgeneration", "endif"),
            _ => inside.to_owned(),
        };
        out.extend(["{%", &plain, "%}"]);
        rest = after;
    }
    out + rest
}

/// The engine's message with its line, and what caused it.
fn template_error(error: minijinja::Error) -> Error {
    let mut reason = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        reason = format!("{reason}: {error}");
        cause = error.source();
    }
    Error::Template { reason }
}
