//! Harmony: an answer of several messages, each with a channel that says whether it is reasoning, a call or text for the reader.

use serde_json::Value;

use super::call::{Context, Found, Reader, Step, before_mark, blanks, call, json_at, malformed, may_become};
use super::scan::JsonScan;

pub(super) const START: &str = "<|start|>";
pub(super) const CHANNEL: &str = "<|channel|>";
pub(super) const CONSTRAIN: &str = "<|constrain|>";
pub(super) const MESSAGE: &str = "<|message|>";
pub(super) const END: &str = "<|end|>";
const RETURN: &str = "<|return|>";
pub(super) const CALL: &str = "<|call|>";
pub(super) const MARKS: [&str; 7] = [START, CHANNEL, CONSTRAIN, MESSAGE, END, RETURN, CALL];

/// What a header may begin with: the prompt has opened the first with `<|start|>assistant`.
const HEADS: [&str; 5] = [START, CHANNEL, MESSAGE, " to=", "to="];
const ENDS: [&str; 3] = [END, RETURN, CALL];

/// Bytes of the longest header.
const MAX_HEADER: usize = 512;

/// Where the reader is.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum At {
    /// In front of or in a header.
    #[default]
    Header,
    Content,
    Reasoning,
}

/// Reads messages.
#[derive(Debug, Default)]
pub(super) struct Harmony {
    at: At,
    scan: JsonScan,
}

impl Reader for Harmony {
    fn step(&mut self, held: &str, context: &Context) -> Step {
        if self.at == At::Header {
            return self.header(held, context);
        }
        let (n, mark) = before_mark(held, &[START, CHANNEL, END, RETURN, CALL], context.last);
        match (n, mark, self.at) {
            (0, None, _) => Step::Wait,
            (0, Some(mark), _) => {
                self.at = At::Header;
                Step::Mark(if ENDS.contains(&mark) { mark.len() } else { 0 })
            }
            (n, _, At::Reasoning) => Step::Reasoning(n),
            (n, ..) => Step::Content(n),
        }
    }
}

impl Harmony {
    fn header(&mut self, held: &str, context: &Context) -> Step {
        if let Some(end) = ENDS.iter().find(|end| held.starts_with(**end)) {
            return Step::Mark(end.len());
        }
        let begun = HEADS.iter().find(|head| held.starts_with(**head));
        match (begun, held.find(MESSAGE).filter(|at| *at <= MAX_HEADER)) {
            (Some(_), Some(at)) => self.message(held, at, context),
            (Some(head), None) if context.last || held.len() > MAX_HEADER + MESSAGE.len() => {
                self.at = At::Content;
                Step::Content(head.len())
            }
            (Some(_), None) => Step::Wait,
            (None, _) if !context.last && HEADS.iter().chain(&ENDS).any(|mark| may_become(held, mark)) => Step::Wait,
            (None, _) => {
                self.at = At::Content;
                self.step(held, context)
            }
        }
    }

    /// The message whose header ends at byte `at`.
    fn message(&mut self, held: &str, at: usize, context: &Context) -> Step {
        let body = at + MESSAGE.len();
        if let Some(to) = word_after(&held[..at], "to=") {
            return self.call(held, body, to.strip_prefix("functions.").unwrap_or(to), context);
        }
        let reasoning = word_after(&held[..at], CHANNEL) == Some("analysis");
        self.at = if reasoning { At::Reasoning } else { At::Content };
        Step::Mark(body)
    }

    fn call(&mut self, held: &str, body: usize, name: &str, context: &Context) -> Step {
        let start = body + blanks(&held[body..]);
        let end = match json_at(&mut self.scan, held, start, context) {
            Found::Wait => return Step::Wait,
            Found::None(problem) => {
                self.at = At::Content;
                return Step::Broken(body, problem);
            }
            Found::Value(end) => end,
        };
        let arguments: Result<Value, _> = serde_json::from_str(&held[start..end]);
        match arguments.map_err(malformed).and_then(|arguments| call(name, arguments, None, context)) {
            Ok(call) => Step::Calls(end, vec![Ok(call)]),
            Err(problem) => {
                self.at = At::Content;
                Step::Broken(end, problem)
            }
        }
    }
}

/// What stands behind `mark`, up to white space or the next mark.
fn word_after<'a>(header: &'a str, mark: &str) -> Option<&'a str> {
    let (_, rest) = header.split_once(mark)?;
    rest.split(|c: char| c == '<' || c.is_whitespace()).next().filter(|word| !word.is_empty())
}
