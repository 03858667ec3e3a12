//! Reads an answer as it streams in.

use super::answer::{Answer, Event, Problem};
use super::call::{Context, Plain, RawCall, Reader, Step, before_mark, may_become};
use super::format::{AnswerFormat, ToolFormat};
use super::functions::{FUNCTION_GEMMA, Functions, GEMMA4};
use super::gemma::Fenced;
use super::harmony::Harmony;
use super::hermes::Hermes;
use super::llama3::Llama3;
use super::mistral::Mistral;
use super::text::{Kind, Out};
use super::tool::Tool;

/// What a parser is told beside the format.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParseOptions {
    /// Names of the tools offered; calls of others are problems. `None` lets any pass.
    pub names: Option<Vec<String>>,
    /// The prompt has opened a span of reasoning, see [`is_open_after`](crate::chat::reasoning::ReasoningFormat::is_open_after).
    pub in_reasoning: bool,
    /// Calls that the conversation has so far: those that come get further ids. A model's own ids stay.
    pub calls_before: usize,
}

impl ParseOptions {
    /// Options for an answer to `prompt`, with `tools` offered.
    pub fn new(format: AnswerFormat, prompt: &str, tools: &[Tool]) -> Self {
        let names = Some(tools.iter().map(|tool| tool.name().to_owned()).collect());
        let in_reasoning = format.reasoning.is_some_and(|reasoning| reasoning.is_open_after(prompt));
        Self { names, in_reasoning, calls_before: 0 }
    }
}

/// Where the parser is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// At the beginning, where a span of reasoning may open.
    Start,
    Reasoning,
    Rest,
}

/// Turns the text of an answer into its parts. The parts are the same however the text is cut into pieces, but for the pieces that
/// content and reasoning come in. What is kept back is at most what may yet become a mark, the call that is being written, and white space.
///
/// White space next to marks is layout and left out; text that goes on behind a mark begins a new line.
///
/// The text must show the marks: see [`AnswerFormat::shown_tokens`].
#[derive(Debug)]
pub struct AnswerParser {
    format: AnswerFormat,
    options: ParseOptions,
    reader: Box<dyn Reader>,
    stage: Stage,
    /// Text that is not decided yet.
    held: String,
    out: Out,
    n_calls: usize,
}

impl AnswerParser {
    /// A parser of one answer.
    pub fn new(format: AnswerFormat, options: ParseOptions) -> Self {
        let reader: Box<dyn Reader> = match format.tools {
            None => Box::new(Plain),
            Some(ToolFormat::Hermes) => Box::new(Hermes::default()),
            Some(ToolFormat::Llama3) => Box::new(Llama3::default()),
            Some(ToolFormat::Mistral) => Box::new(Mistral::default()),
            Some(ToolFormat::Fenced) => Box::new(Fenced::default()),
            Some(ToolFormat::FunctionGemma) => Box::new(Functions::new(&FUNCTION_GEMMA)),
            Some(ToolFormat::Gemma4) => Box::new(Functions::new(&GEMMA4)),
            Some(ToolFormat::Harmony) => Box::new(Harmony::default()),
        };
        let mut out = Out::new();
        let stage = if options.in_reasoning { Stage::Reasoning } else { Stage::Start };
        if options.in_reasoning {
            out.mark();
        }
        Self { format, options, reader, stage, held: String::new(), out, n_calls: 0 }
    }

    /// What has become known with `text`.
    pub fn push(&mut self, text: &str) -> Vec<Event> {
        self.held.push_str(text);
        self.run(false)
    }

    /// What is left at the end. Nothing may be pushed after it.
    pub fn finish(&mut self) -> Vec<Event> {
        let mut events = self.run(true);
        self.out.finish();
        events.append(&mut self.out.events);
        events
    }

    fn run(&mut self, last: bool) -> Vec<Event> {
        let mut held = std::mem::take(&mut self.held);
        let mut at = 0;
        while at < held.len() {
            let rest = &held[at..];
            match self.step(rest, last) {
                Step::Wait if last => {
                    self.out.text(Kind::Content, rest);
                    at = held.len();
                }
                Step::Wait => break,
                Step::Content(n) => at += self.text(Kind::Content, rest, n),
                Step::Reasoning(n) => at += self.text(Kind::Reasoning, rest, n),
                Step::Mark(n) => {
                    self.out.mark();
                    at += n;
                }
                Step::Broken(n, problem) => {
                    at += self.text(Kind::Content, rest, n);
                    self.out.events.push(Event::Problem(problem));
                }
                Step::Calls(n, calls) => {
                    at += n;
                    self.calls(calls);
                }
            }
        }
        held.drain(..at);
        self.held = held;
        std::mem::take(&mut self.out.events)
    }

    fn step(&mut self, held: &str, last: bool) -> Step {
        let Some(reasoning) = self.format.reasoning.filter(|_| self.stage != Stage::Rest) else {
            let context = Context { names: self.options.names.as_deref(), last, line_start: self.out.line_start() };
            return self.reader.step(held, &context);
        };
        let (open, close) = (reasoning.open(), reasoning.close());
        if self.stage == Stage::Reasoning {
            return match before_mark(held, &[close], last) {
                (0, Some(_)) => {
                    self.stage = Stage::Start;
                    Step::Mark(close.len())
                }
                (0, None) => Step::Wait,
                (n, _) => Step::Reasoning(n),
            };
        }
        let text = held.trim_start();
        if text.starts_with(open) {
            self.stage = Stage::Reasoning;
            return Step::Mark(held.len() - text.len() + open.len());
        }
        if !last && may_become(text, open) {
            return Step::Wait;
        }
        self.stage = Stage::Rest;
        self.step(held, last)
    }

    fn text(&mut self, kind: Kind, held: &str, n: usize) -> usize {
        self.out.text(kind, &held[..n]);
        n
    }

    fn calls(&mut self, calls: Vec<Result<RawCall, (String, Problem)>>) {
        for call in calls {
            self.out.mark();
            match call {
                Ok(call) => self.call(call),
                Err((text, problem)) => {
                    self.out.text(Kind::Content, &text);
                    self.out.events.push(Event::Problem(problem));
                }
            }
        }
        self.out.mark();
    }

    fn call(&mut self, call: RawCall) {
        let index = self.n_calls;
        self.n_calls += 1;
        // Nine letters and digits, as Mistral's templates insist.
        let id = call.id.unwrap_or_else(|| format!("call{:05}", self.options.calls_before + index));
        let arguments = serde_json::Value::Object(call.arguments).to_string();
        self.out.events.extend([
            Event::ToolCallStart { index, id, name: call.name },
            Event::ToolCallArguments { index, arguments },
            Event::ToolCallEnd { index },
        ]);
    }
}

/// Reads an answer that is there as a whole.
pub fn parse_answer(text: &str, format: AnswerFormat, options: ParseOptions) -> Answer {
    let mut parser = AnswerParser::new(format, options);
    let mut answer = Answer::default();
    let events = parser.push(text);
    events.into_iter().chain(parser.finish()).for_each(|event| answer.add(event));
    answer
}
