//! Grammars that make a model call a tool: what its format allows, for the tools it is offered.
//!
//! The text is Lark in the dialect of llguidance: `%json { … }` stands for a value of a schema, `<name>` and `<[id]>` for a token.

use super::format::{AnswerFormat, ToolFormat};
use super::functions::{FUNCTION_GEMMA, GEMMA4, Marks};
use super::harmony;
use super::tool::Tool;
use super::typed::Typed;
use super::{hermes, mistral};
use crate::tokenizer::Tokenizer;

/// What a mark is in a vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkToken {
    /// No token of its own.
    None,
    /// A token that is text to a grammar.
    Text,
    /// A token that a grammar has to name: a control token or one that ends generation.
    Special(u32),
}

impl MarkToken {
    /// What `text` is in a model's vocabulary.
    pub fn of(tokenizer: &Tokenizer, text: &str) -> Self {
        match tokenizer.token_id(text) {
            None => Self::None,
            Some(id) if tokenizer.is_control(id) || tokenizer.is_eog(id) => Self::Special(id),
            Some(_) => Self::Text,
        }
    }
}

/// What an answer has to be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RequiredCalls<'a> {
    /// How the model writes.
    pub format: AnswerFormat,
    /// The tools it may call: all of them, or the one it is to call.
    pub tools: &'a [Tool],
    /// Whether it may make several calls. Harmony has one an answer.
    pub parallel: bool,
    /// The prompt has opened a span of reasoning; else one may come first where the format has them.
    pub in_reasoning: bool,
}

impl RequiredCalls<'_> {
    /// The grammar. `None` where the format has no calls or there are no tools. Schemas are handed on as they are.
    pub fn lark(&self, token: impl Fn(&str) -> MarkToken) -> Option<String> {
        let format = self.format.tools.filter(|_| !self.tools.is_empty())?;
        let mut lark = Lark { token: &token, rules: Vec::new() };
        let call = match format {
            ToolFormat::FunctionGemma => self.functions(&mut lark, &FUNCTION_GEMMA),
            ToolFormat::Gemma4 => self.functions(&mut lark, &GEMMA4),
            _ => self.json_calls(&mut lark, format),
        };
        lark.rules.push(format!("call: {call}"));
        let calls = self.separated(&mut lark, format);
        let thought = self.thought(&mut lark, format);
        Some(format!("start: {thought}{calls}\n{}\n", lark.rules.join("\n")))
    }

    /// Alternatives of calls whose arguments are JSON.
    fn json_calls(&self, lark: &mut Lark, format: ToolFormat) -> String {
        let mut calls = Vec::new();
        for (i, tool) in self.tools.iter().enumerate() {
            let schema = serde_json::Value::Object(tool.parameters().clone());
            lark.rules.push(format!("arguments_{i}: %json {schema}"));
            let arguments = Part::Rule(format!("arguments_{i}"));
            let name = tool.name();
            let object = |key: &str| format!("{{\"name\": \"{name}\", \"{key}\": ");
            let parts = match format {
                ToolFormat::Hermes => vec![
                    Part::Mark(hermes::OPEN),
                    Part::Text("\n".into()),
                    Part::Text(object("arguments")),
                    arguments,
                    Part::Text("}\n".into()),
                    Part::Mark(hermes::CLOSE),
                ],
                ToolFormat::Mistral if lark.has(mistral::ARGUMENTS) => {
                    vec![Part::Mark(mistral::OPEN), Part::Text(name.into()), Part::Mark(mistral::ARGUMENTS), arguments]
                }
                ToolFormat::Harmony => vec![
                    Part::Mark(harmony::CHANNEL),
                    Part::Text(format!("commentary to=functions.{name} ")),
                    Part::Mark(harmony::CONSTRAIN),
                    Part::Text("json".into()),
                    Part::Mark(harmony::MESSAGE),
                    arguments,
                    Part::Mark(harmony::CALL),
                ],
                ToolFormat::Fenced => vec![
                    Part::Text(format!("```tool_code\n{}", object("parameters"))),
                    arguments,
                    Part::Text("}\n```".into()),
                ],
                ToolFormat::Llama3 => vec![Part::Text(object("parameters")), arguments, Part::Text("}".into())],
                _ => vec![Part::Text(object("arguments")), arguments, Part::Text("}".into())],
            };
            calls.push(lark.sequence(&parts));
        }
        calls.join(" | ")
    }

    /// Alternatives of calls in Gemma's own notation.
    fn functions(&self, lark: &mut Lark, marks: &Marks) -> String {
        let mut typed = Typed::new(&lark.until("text", marks.quote), lark.sequence(&[Part::Mark(marks.quote)]));
        let mut calls = Vec::new();
        for tool in self.tools {
            let arguments = Part::Rule(typed.object(tool.parameters(), 0));
            let name = Part::Text(format!("call:{}", tool.name()));
            calls.push(lark.sequence(&[Part::Mark(marks.open), name, arguments, Part::Mark(marks.close)]));
        }
        lark.rules.append(&mut typed.rules);
        calls.join(" | ")
    }

    /// One call, or several as the format strings them together.
    fn separated(&self, lark: &mut Lark, format: ToolFormat) -> String {
        let (first, between, last) = match format {
            ToolFormat::Mistral if !lark.has(mistral::ARGUMENTS) => {
                let open = lark.sequence(&[Part::Mark(mistral::OPEN), Part::Text("[".into())]);
                (open + " ", "\", \" ", " \"]\"")
            }
            ToolFormat::Hermes | ToolFormat::Fenced => (String::new(), "\"\\n\" ", ""),
            ToolFormat::Llama3 => (String::new(), "\"; \" ", ""),
            _ => (String::new(), "", ""),
        };
        let more =
            if self.parallel && format != ToolFormat::Harmony { format!(" ({between}call)*") } else { String::new() };
        format!("{first}call{more}{last}")
    }

    /// The reasoning in front of calls.
    fn thought(&self, lark: &mut Lark, format: ToolFormat) -> String {
        if format == ToolFormat::Harmony {
            let open = lark.sequence(&[
                Part::Mark(harmony::CHANNEL),
                Part::Text("analysis".into()),
                Part::Mark(harmony::MESSAGE),
            ]);
            let body = lark.until("analysis", harmony::END);
            let next = lark.sequence(&[Part::Mark(harmony::START), Part::Text("assistant".into())]);
            lark.rules.push(format!("thought: {open} {body} {next}"));
            return "thought? ".into();
        }
        let Some(reasoning) = self.format.reasoning else { return String::new() };
        let body = lark.until("reasoning", reasoning.close());
        lark.rules.push("LINES: /\\n{1,2}/".into());
        if self.in_reasoning {
            return format!("{body} LINES? ");
        }
        let opening = match reasoning.tokens() {
            [token, _] if token != reasoning.open() => {
                lark.sequence(&[Part::Mark(token), Part::Text(reasoning.open()[token.len()..].into())])
            }
            [token, _] => lark.sequence(&[Part::Mark(token)]),
        };
        lark.rules.push(format!("thought: {opening} {body} LINES?"));
        "thought? ".into()
    }
}

/// A part of a rule.
enum Part {
    Text(String),
    Mark(&'static str),
    Rule(String),
}

/// A grammar in the making.
struct Lark<'a> {
    token: &'a dyn Fn(&str) -> MarkToken,
    rules: Vec<String>,
}

impl Lark<'_> {
    fn has(&self, mark: &str) -> bool {
        (self.token)(mark) != MarkToken::None
    }

    /// Parts one behind the other; texts that meet become one.
    fn sequence(&self, parts: &[Part]) -> String {
        let mut items: Vec<String> = Vec::new();
        let mut text = String::new();
        for part in parts {
            let item = match part {
                Part::Text(more) => {
                    text += more;
                    continue;
                }
                Part::Mark(mark) => match self.named(mark) {
                    Some(token) => token,
                    None => {
                        text += mark;
                        continue;
                    }
                },
                Part::Rule(name) => name.clone(),
            };
            if !text.is_empty() {
                items.push(literal(&std::mem::take(&mut text)));
            }
            items.push(item);
        }
        if !text.is_empty() {
            items.push(literal(&text));
        }
        items.join(" ")
    }

    /// A mark that has to be named.
    fn named(&self, mark: &str) -> Option<String> {
        let MarkToken::Special(id) = (self.token)(mark) else { return None };
        let tag = mark.strip_prefix('<').and_then(|rest| rest.strip_suffix('>'));
        let nameable =
            tag.is_some_and(|tag| !tag.is_empty() && !tag.starts_with('[') && !tag.contains(['<', '>', ' ', '\n']));
        Some(if nameable { mark.to_owned() } else { format!("<[{id}]>") })
    }

    /// Any text up to and with `mark`, under a rule's `name`.
    fn until(&mut self, name: &str, mark: &'static str) -> String {
        if !self.rules.iter().any(|rule| rule.starts_with("ANY:")) {
            self.rules.push("ANY: /(.|\\n)*/".into());
        }
        let rule = match self.named(mark) {
            Some(token) => format!("{name}: ANY {token}"),
            None => format!("{name}[suffix={}]: ANY", literal(mark)),
        };
        self.rules.push(rule);
        name.to_owned()
    }
}

/// A text in quotes.
pub(super) fn literal(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_text_of_a_grammar() {
        let tool = Tool::new("f", "", json!({"properties": {"x": {"enum": ["a\"\u{7f}"]}}})).expect("a tool");
        let format = AnswerFormat { tools: Some(ToolFormat::Mistral), reasoning: None };
        let required =
            RequiredCalls { format, tools: std::slice::from_ref(&tool), parallel: true, in_reasoning: false };
        let special = |text: &str| match text {
            mistral::OPEN => MarkToken::Special(5),
            mistral::ARGUMENTS => MarkToken::Text,
            _ => MarkToken::None,
        };
        let schema = "{\"properties\":{\"x\":{\"enum\":[\"a\\\"\u{7f}\"]}},\"type\":\"object\"}";
        let expected =
            format!("start: call (call)*\narguments_0: %json {schema}\ncall: <[5]> \"f[ARGS]\" arguments_0\n");
        assert_eq!(required.lark(special), Some(expected));
        let format = AnswerFormat { tools: Some(ToolFormat::FunctionGemma), reasoning: None };
        let required = RequiredCalls { format, parallel: false, ..required };
        let lark = required.lark(|_| MarkToken::None).expect("a grammar");
        assert!(lark.contains("first_0_0: (\"x:\" \"<escape>\" \"a\\\"\\u007f\" \"<escape>\")?\n"), "{lark}");
        assert!(lark.contains("call: \"<start_function_call>call:f\" object_0 \"<end_function_call>\"\n"), "{lark}");
    }
}
