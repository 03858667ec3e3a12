//! A call as a model wrote it, and what readers of formats share.

use serde_json::{Map, Value};

use super::answer::Problem;
use super::scan::{JsonScan, Scan};
use crate::chat::message::object;

/// A call that is sound.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RawCall {
    /// Where the model gave one.
    pub(super) id: Option<String>,
    pub(super) name: String,
    pub(super) arguments: Map<String, Value>,
}

/// What readers know beside the text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context<'a> {
    /// Names of the tools; `None` where any may be called.
    pub(super) names: Option<&'a [String]>,
    /// Whether no more text will come.
    pub(super) last: bool,
    /// Whether the text held begins a line, or a part of the answer.
    pub(super) line_start: bool,
}

impl Context<'_> {
    fn check_name(&self, name: &str) -> Result<(), Problem> {
        match self.names {
            _ if name.is_empty() => Err(Problem::NoName),
            Some(names) if !names.iter().any(|known| known == name) => Err(Problem::UnknownTool { name: name.into() }),
            _ => Ok(()),
        }
    }
}

/// What to do with the beginning of the text held.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Nothing: it depends on text to come.
    Wait,
    /// So many bytes are content.
    Content(usize),
    /// So many bytes are reasoning.
    Reasoning(usize),
    /// So many bytes are marks or layout, not text.
    Mark(usize),
    /// So many bytes are calls; those that are none as text and problem.
    Calls(usize, Vec<Result<RawCall, (String, Problem)>>),
    /// So many bytes are the beginning of what is no call: content.
    Broken(usize, Problem),
}

/// Reads a format: looks at the beginning of the text held. With `last` it must decide. The text it saw is there again in the next call,
/// grown, unless its step consumed some.
pub(super) trait Reader: std::fmt::Debug + Send + Sync {
    fn step(&mut self, held: &str, context: &Context) -> Step;
}

/// The reader of answers without calls.
#[derive(Debug)]
pub(super) struct Plain;

impl Reader for Plain {
    fn step(&mut self, held: &str, _: &Context) -> Step {
        Step::Content(held.len())
    }
}

/// A value's end, or that there is none.
pub(super) enum Found {
    Wait,
    /// The byte behind the value.
    Value(usize),
    None(Problem),
}

/// The JSON object or array at byte `start`.
pub(super) fn json_at(scan: &mut JsonScan, held: &str, start: usize, context: &Context) -> Found {
    match scan.scan(held, start) {
        Scan::Done(end) => Found::Value(end),
        Scan::Bad(at) => {
            let found = held[at..].chars().next().unwrap_or_default();
            Found::None(malformed(format!("{found:?} at byte {} of its JSON", at - start)))
        }
        Scan::Wait if context.last => {
            *scan = JsonScan::default();
            Found::None(Problem::Unfinished)
        }
        Scan::Wait => Found::Wait,
    }
}

pub(super) fn malformed(reason: impl ToString) -> Problem {
    Problem::Malformed { reason: reason.to_string() }
}

/// A call from parts.
pub(super) fn call(name: &str, arguments: Value, id: Option<&str>, context: &Context) -> Result<RawCall, Problem> {
    context.check_name(name)?;
    let arguments = object(arguments).map_err(|found| Problem::BadArguments { name: name.into(), found })?;
    Ok(RawCall { id: id.map(str::to_owned), name: name.into(), arguments })
}

/// A call from `{"name": …, "arguments": {…}}`; `parameters` is taken for `arguments`.
pub(super) fn call_of_json(json: &Value, context: &Context) -> Result<RawCall, Problem> {
    let name = json["name"].as_str().unwrap_or_default();
    let arguments = json.get("arguments").or(json.get("parameters")).cloned().unwrap_or_default();
    call(name, arguments, json["id"].as_str().filter(|id| !id.is_empty()), context)
}

/// The calls that JSON text holds, an object or an array of them, which is `held` to byte `end` with what is before it.
pub(super) fn calls_of_text(held: &str, start: usize, end: usize, context: &Context) -> Step {
    let items = match serde_json::from_str(&held[start..end]) {
        Ok(Value::Array(items)) => items,
        Ok(one) => vec![one],
        Err(error) => return Step::Broken(end, malformed(error)),
    };
    let mut calls = Vec::new();
    for item in items {
        calls.push(call_of_json(&item, context).map_err(|problem| (item.to_string(), problem)));
    }
    let sound = calls.iter().any(Result::is_ok);
    match calls.iter().find_map(|call| call.as_ref().err()) {
        Some((_, problem)) if !sound => Step::Broken(end, problem.clone()),
        None if !sound => Step::Broken(end, malformed("an empty list of calls")),
        _ => Step::Calls(end, calls),
    }
}

/// Whether JSON text looks like a call: an object with a name and arguments.
pub(super) fn looks_like_call(text: &str) -> bool {
    let json: Value = serde_json::from_str(text).unwrap_or_default();
    let one =
        |json: &Value| json["name"].is_string() && (json["parameters"].is_object() || json["arguments"].is_object());
    match &json {
        Value::Array(items) => !items.is_empty() && items.iter().all(one),
        json => one(json),
    }
}

/// Bytes of `text` in front of the first of `marks`, with that mark; where there is none, those that cannot belong to one.
pub(super) fn before_mark<'m>(text: &str, marks: &[&'m str], last: bool) -> (usize, Option<&'m str>) {
    let first = marks.iter().filter_map(|mark| Some((text.find(mark)?, *mark))).min_by_key(|(at, _)| *at);
    if let Some((at, mark)) = first {
        return (at, Some(mark));
    }
    let kept = if last { 0 } else { marks.iter().map(|mark| overlap(text, mark)).max().unwrap_or(0) };
    (text.len() - kept, None)
}

/// Bytes of the longest end of `text` that a proper beginning of `mark` equals.
fn overlap(text: &str, mark: &str) -> usize {
    (1..mark.len()).rev().find(|n| mark.is_char_boundary(*n) && text.ends_with(&mark[..*n])).unwrap_or(0)
}

/// Whether `text` may still become `mark`.
pub(super) fn may_become(text: &str, mark: &str) -> bool {
    text.len() < mark.len() && mark.starts_with(text)
}

/// Bytes of the white space `text` begins with.
pub(super) fn blanks(text: &str) -> usize {
    text.len() - text.trim_start().len()
}
