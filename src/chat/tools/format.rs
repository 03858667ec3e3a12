//! Which way a model writes calls and reasoning.

use super::functions::Marks;
use super::{functions, harmony, hermes, llama3, mistral};
use crate::chat::ChatTemplate;
use crate::chat::reasoning::ReasoningFormat;
use crate::tokenizer::Tokenizer;

/// How a model writes calls of tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolFormat {
    /// `<tool_call>{"name": …, "arguments": {…}}</tool_call>`: Hermes, Qwen 2.5, Qwen 3.
    Hermes,
    /// `{"name": …, "parameters": {…}}` at the beginning of a line, or behind `<|python_tag|>`: Llama 3.
    Llama3,
    /// `[TOOL_CALLS][{"name": …, "arguments": {…}}]`, or `[TOOL_CALLS]name[ARGS]{…}`: Mistral.
    Mistral,
    /// A fenced block of JSON or of calls as in Python: Gemma 3, and any model told so by [`spelled_out`](super::spelled_out).
    Fenced,
    /// `<start_function_call>call:name{key:<escape>text<escape>}<end_function_call>`: FunctionGemma.
    FunctionGemma,
    /// `<|tool_call>call:name{key:<|"|>text<|"|>}<tool_call|>`: Gemma 4.
    Gemma4,
    /// Messages with channels, `<|channel|>commentary to=functions.name <|constrain|>json<|message|>{…}<|call|>`: gpt-oss.
    Harmony,
}

impl ToolFormat {
    /// The format that a template prints. Where it knows no tools, tokens decide; where it has calls of another format,
    /// `None`.
    pub fn detect(template: &str, is_token: impl Fn(&str) -> bool) -> Option<Self> {
        let has = |text: &str| template.contains(text);
        if has("<|channel|>") && has("<|message|>") {
            return Some(Self::Harmony);
        }
        if !has("tools") {
            return Self::of_tokens(is_token);
        }
        let marked = [
            ("[TOOL_CALLS]", Self::Mistral),
            (functions::FUNCTION_GEMMA.open, Self::FunctionGemma),
            (functions::GEMMA4.open, Self::Gemma4),
        ];
        if let Some((_, format)) = marked.into_iter().find(|(mark, _)| has(mark)) {
            return Some(format);
        }
        // Others put XML or special marks between the same tags.
        let json_inside = has("arguments")
            && has("name")
            && !["<function=", "<arg_key>", "<invoke", "<tool_sep>"].iter().any(|s| has(s));
        if has(hermes::OPEN) {
            return json_inside.then_some(Self::Hermes);
        }
        let llama = has("<|start_header_id|>") && (has("\"parameters\"") || has(llama3::TAG)) && !has("<function=");
        llama.then_some(Self::Llama3)
    }

    fn of_tokens(is_token: impl Fn(&str) -> bool) -> Option<Self> {
        let marked = [
            ("<|call|>", Self::Harmony),
            ("[TOOL_CALLS]", Self::Mistral),
            (functions::FUNCTION_GEMMA.open, Self::FunctionGemma),
            (functions::GEMMA4.open, Self::Gemma4),
            (hermes::OPEN, Self::Hermes),
            (llama3::TAG, Self::Llama3),
            ("<start_of_turn>", Self::Fenced),
        ];
        marked.into_iter().find(|(mark, _)| is_token(mark)).map(|(_, format)| format)
    }

    /// The texts that mark calls, as far as they may be tokens.
    pub fn marks(self) -> &'static [&'static str] {
        match self {
            Self::Hermes => &[hermes::OPEN, hermes::CLOSE],
            Self::Llama3 => &[llama3::TAG],
            Self::Mistral => &mistral::MARKS,
            Self::Fenced => &[],
            Self::FunctionGemma => const { &functions::FUNCTION_GEMMA.all() },
            Self::Gemma4 => const { &functions::GEMMA4.all() },
            Self::Harmony => &harmony::MARKS,
        }
    }
}

impl ToolFormat {
    /// Marks behind calls at which generation has to stop, where the vocabulary does not say so: more stop strings for the request.
    pub fn stops(self) -> &'static [&'static str] {
        match self {
            Self::FunctionGemma => &["<start_function_response>"],
            _ => &[],
        }
    }
}

impl Marks {
    const fn all(&self) -> [&'static str; 3] {
        [self.open, self.close, self.quote]
    }
}

/// How a model writes what is not content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AnswerFormat {
    /// Calls; `None` where it writes none.
    pub tools: Option<ToolFormat>,
    /// Reasoning; `None` where it has no marks of its own.
    pub reasoning: Option<ReasoningFormat>,
}

impl AnswerFormat {
    /// The format of a model. Without a template tokens decide.
    pub fn detect(template: Option<&ChatTemplate>, tokenizer: &Tokenizer) -> Self {
        let source = template.map_or("", ChatTemplate::source);
        let is_token = |text: &str| tokenizer.token_id(text).is_some();
        let tools = ToolFormat::detect(source, is_token);
        let channels = tools == Some(ToolFormat::Harmony);
        let reasoning = if channels { None } else { ReasoningFormat::detect(source, is_token) };
        Self { tools, reasoning }
    }

    /// Ids of the marks that are tokens: a [`Decoder`](crate::tokenizer::Decoder) has to show them, for a parser to find them.
    pub fn shown_tokens(&self, tokenizer: &Tokenizer) -> Vec<u32> {
        let reasoning = self.reasoning.map(ReasoningFormat::tokens);
        let marks = self.tools.map_or(&[][..], ToolFormat::marks).iter().chain(reasoning.iter().flatten());
        marks.filter_map(|text| tokenizer.token_id(text)).collect()
    }
}
