//! From a conversation to a prompt, and how its answer is to be read.

use super::{Engine, GenerateOptions};
use crate::chat::tools::{AnswerFormat, AnswerParser, ParseOptions, Tool, ToolFormat, spelled_out};
use crate::chat::{ChatTemplate, Message, RenderOptions};
use crate::error::{Error, Result};

/// A conversation's prompt, and how the model writes what answers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatPrompt {
    /// The prompt's tokens.
    pub ids: Vec<u32>,
    /// How calls and reasoning are written; without tools only what every answer may have.
    pub format: AnswerFormat,
    /// What the parser is told beside it.
    pub parsing: ParseOptions,
    shown_tokens: Vec<u32>,
}

impl ChatPrompt {
    /// A parser of an answer.
    pub fn parser(&self) -> AnswerParser {
        AnswerParser::new(self.format, self.parsing.clone())
    }

    /// Adds to a request's options what reading the answer needs: marks are shown, and the answer ends behind its calls.
    pub fn apply(&self, options: &mut GenerateOptions) {
        options.shown_tokens.extend(&self.shown_tokens);
        options.stop.extend(self.format.tools.iter().flat_map(|format| format.stops()).map(|text| text.to_string()));
    }
}

impl Engine {
    /// Whether the file has a chat template.
    pub fn has_chat_template(&self) -> bool {
        matches!(self.template, Ok(Some(_)))
    }

    /// Token ids of a conversation, rendered by the file's own template, ready for the assistant's answer.
    ///
    /// # Errors
    /// [`Error::Template`] where the file has no template or it refuses the messages.
    pub fn chat_prompt(&self, messages: &[Message]) -> Result<Vec<u32>> {
        self.chat(messages, &[]).map(|prompt| prompt.ids)
    }

    /// The prompt of a conversation in which the assistant may call `tools`. Where the template knows none, or writes calls in a way that cannot be
    /// read, they stand in the text of the messages: see [`spelled_out`].
    ///
    /// # Errors
    /// [`Error::Template`] where the file has no template or it refuses the messages, [`Error::BadTool`] where two tools have one name.
    pub fn chat(&self, messages: &[Message], tools: &[Tool]) -> Result<ChatPrompt> {
        let template = self.template()?;
        let detected = AnswerFormat::detect(Some(template), &self.tokenizer);
        let is_native = template.knows_tools() && (tools.is_empty() || detected.tools.is_some());
        let offers = RenderOptions { tools: tools.to_vec(), ..RenderOptions::default() };
        let text = match is_native {
            true => template.render(messages, &offers)?,
            false => template.render(&spelled_out(messages, tools), &RenderOptions::default())?,
        };
        let written = if is_native { detected.tools } else { Some(ToolFormat::Fenced) };
        // Harmony's channels are there without tools, too.
        let written = written.filter(|written| !tools.is_empty() || *written == ToolFormat::Harmony);
        let format = AnswerFormat { tools: written, ..detected };
        let calls_before = messages.iter().map(|message| message.tool_calls.len()).sum();
        Ok(ChatPrompt {
            ids: self.tokenizer.encode_chat(&text),
            format,
            parsing: ParseOptions { calls_before, ..ParseOptions::new(format, &text, tools) },
            shown_tokens: format.shown_tokens(&self.tokenizer),
        })
    }

    fn template(&self) -> Result<&ChatTemplate> {
        let unusable = |reason: &str| Error::Template { reason: format!("{reason}; use a raw prompt") };
        match &self.template {
            Ok(Some(template)) => Ok(template),
            Ok(None) => Err(unusable("the file has none")),
            Err(reason) => Err(unusable(reason)),
        }
    }
}

#[cfg(test)]
mod tests {
    use pollster::block_on;
    use serde_json::json;

    use super::*;
    use crate::chat::ToolCall;
    use crate::engine::{BackendChoice, LoadOptions};
    use crate::gguf::Source;
    use crate::micro::MicroModel;
    use crate::quant::QuantType;

    #[test]
    fn tools_stand_in_the_text_where_the_template_knows_none() {
        let source = Source::memory("micro", MicroModel::tiny(QuantType::Q8_0).bytes());
        let options = LoadOptions { backend: BackendChoice::Cpu, n_ctx: Some(64), ..Default::default() };
        let engine = block_on(Engine::load(source, options)).expect("the model loads");
        let question = Message::new("user", "Is it cold?");
        let plain = engine.chat(std::slice::from_ref(&question), &[]).expect("a prompt");
        assert_eq!(plain.format, AnswerFormat::default());
        assert_eq!(engine.chat_prompt(std::slice::from_ref(&question)).expect("a prompt"), plain.ids);

        let tool = Tool::new("weather", "The weather", json!({"type": "object"})).expect("a tool");
        let prompt = engine.chat(std::slice::from_ref(&question), std::slice::from_ref(&tool)).expect("a prompt");
        assert_eq!(prompt.format.tools, Some(ToolFormat::Fenced));
        assert_eq!(prompt.parsing.names, Some(vec!["weather".into()]));
        assert!(engine.tokenizer().decode(&prompt.ids).contains("The weather"));
        assert!(!engine.tokenizer().decode(&plain.ids).contains("The weather"));

        let call = ToolCall { id: "a".into(), name: "weather".into(), arguments: Default::default() };
        let asked = Message { tool_calls: vec![call.clone()], ..Message::new("assistant", "") };
        let conversation = [question, asked, Message::tool_result(&call, "-3 degrees")];
        let prompt = engine.chat(&conversation, &[tool]).expect("a prompt");
        assert_eq!(prompt.parsing.calls_before, 1);
        assert!(engine.tokenizer().decode(&prompt.ids).contains("-3 degrees"));
    }
}
