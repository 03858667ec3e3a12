//! Calls behind `[TOOL_CALLS]`: an array of JSON objects, or a name, `[ARGS]` and the arguments.

use serde_json::Value;

use super::answer::Problem;
use super::call::{Context, Found, Reader, Step, before_mark, blanks, call, calls_of_text, json_at, malformed};
use super::scan::JsonScan;
use super::tool::is_name_char;

pub(super) const OPEN: &str = "[TOOL_CALLS]";
const ID: &str = "[CALL_ID]";
pub(super) const ARGUMENTS: &str = "[ARGS]";
pub(super) const MARKS: [&str; 3] = [OPEN, ID, ARGUMENTS];

/// Bytes between the mark and the arguments that are looked at.
const MAX_HEAD: usize = 256;

/// Reads both forms.
#[derive(Debug, Default)]
pub(super) struct Mistral {
    scan: JsonScan,
}

impl Reader for Mistral {
    fn step(&mut self, held: &str, context: &Context) -> Step {
        match before_mark(held, &[OPEN], context.last) {
            (0, Some(_)) => self.call(held, context),
            (0, None) => Step::Wait,
            (n, _) => Step::Content(n),
        }
    }
}

impl Mistral {
    fn call(&mut self, held: &str, context: &Context) -> Step {
        let head = OPEN.len() + blanks(&held[OPEN.len()..]);
        let start = match held[head..].chars().next() {
            None => None,
            Some('[') => Some(head),
            Some(c) if is_name_char(c) => held[head..].find('{').map(|at| head + at),
            Some(c) => {
                return Step::Broken(OPEN.len(), malformed(format!("{c:?} behind {OPEN}, expected a list or a name")));
            }
        };
        let Some(start) = start.filter(|start| *start <= head + MAX_HEAD) else {
            return match context.last {
                _ if held.len() > head + MAX_HEAD => {
                    Step::Broken(OPEN.len(), malformed("no arguments behind its name"))
                }
                true => Step::Broken(OPEN.len(), Problem::Unfinished),
                false => Step::Wait,
            };
        };
        match json_at(&mut self.scan, held, start, context) {
            Found::Wait => Step::Wait,
            Found::None(problem) => Step::Broken(OPEN.len(), problem),
            Found::Value(end) if start == head => calls_of_text(held, start, end, context),
            Found::Value(end) => named(held, &held[head..start], start, end, context),
        }
    }
}

/// The call whose name and marks are `head` and whose arguments are at `start` to `end`.
fn named(held: &str, head: &str, start: usize, end: usize, context: &Context) -> Step {
    let head = head.trim_end();
    let head = head.strip_suffix(ARGUMENTS).unwrap_or(head);
    let (name, id) = head.split_once(ID).map_or((head, None), |(name, id)| (name, Some(id.trim())));
    let name = name.trim_end();
    if let Some(c) = name.chars().find(|c| !is_name_char(*c)) {
        return Step::Broken(OPEN.len(), malformed(format!("{c:?} in its name")));
    }
    let arguments: Result<Value, _> = serde_json::from_str(&held[start..end]);
    match arguments.map_err(malformed).and_then(|arguments| call(name, arguments, id, context)) {
        Ok(call) => Step::Calls(end, vec![Ok(call)]),
        Err(problem) => Step::Broken(end, problem),
    }
}
