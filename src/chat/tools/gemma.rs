//! Calls in fenced blocks, of JSON or as in Python; and, as models forget the fence, bare ones at the beginning of a line.

use super::answer::Problem;
use super::call::{Context, Found, Reader, Step, call, calls_of_text, json_at, looks_like_call, malformed, may_become};
use super::llama3::Bare;
use super::python;
use super::scan::JsonScan;
use super::tool::is_name_char;

const FENCE: &str = "```";
/// Languages that a block of calls may name. Those that begin with `tool` hold nothing else.
const LANGUAGES: [&str; 4] = ["tool_code", "tool_call", "json", ""];

/// Reads blocks and bare calls.
#[derive(Debug, Default)]
pub(super) struct Fenced {
    bare: Bare,
    scan: JsonScan,
    /// Calls of a block have been read, its closing fence has not.
    inside: bool,
    /// Bytes in which the end of calls as in Python was looked for.
    looked: usize,
}

impl Reader for Fenced {
    fn step(&mut self, held: &str, context: &Context) -> Step {
        if self.inside {
            return self.behind_calls(held, context);
        }
        if !context.line_start {
            return Step::Content(next_line(held));
        }
        match held.as_bytes().first() {
            Some(b'`') if held.starts_with(FENCE) => self.block(held, context),
            Some(b'`') if !context.last && may_become(held, FENCE) => Step::Wait,
            Some(b'[') => self.list(held, context),
            Some(b'{') => self.bare.step(held, context),
            _ => Step::Content(next_line(held)),
        }
    }
}

/// Bytes up to the next line that may begin a call.
fn next_line(held: &str) -> usize {
    let starts = held.match_indices('\n').map(|(at, _)| at + 1);
    starts.into_iter().find(|at| held[*at..].starts_with(['`', '[', '{'])).unwrap_or(held.len())
}

impl Fenced {
    /// A closing fence or further calls of the block.
    fn behind_calls(&mut self, held: &str, context: &Context) -> Step {
        let rest = held.trim_start_matches([' ', '\t', '\r', '\n', ',']);
        let at = held.len() - rest.len();
        if !context.last && may_become(rest, FENCE) {
            return Step::Wait;
        }
        if rest.starts_with(['{', '[']) {
            return self.json(held, at, at, true, context);
        }
        self.inside = false;
        if rest.starts_with(FENCE) { Step::Mark(at + FENCE.len()) } else { self.step(held, context) }
    }

    fn block(&mut self, held: &str, context: &Context) -> Step {
        let text = Step::Content(FENCE.len());
        let Some(line) = held.find('\n') else {
            let begun = held[FENCE.len()..].trim_end();
            let wait = !context.last && LANGUAGES.iter().any(|language| language.starts_with(begun));
            return if wait { Step::Wait } else { text };
        };
        let language = held[FENCE.len()..line].trim();
        if !LANGUAGES.contains(&language) {
            return text;
        }
        let only_calls = language.starts_with("tool");
        let body = held[line..].trim_start();
        let at = held.len() - body.len();
        match (body.chars().next(), body.get(1..).and_then(|rest| rest.trim_start().chars().next())) {
            (None, _) | (Some('['), None) if !context.last => Step::Wait,
            (Some('{'), _) | (Some('['), Some('{')) => self.json(held, at, FENCE.len(), only_calls, context),
            (Some(_), _) if only_calls => self.python(held, at, b"\n```", context),
            _ => text,
        }
    }

    /// JSON at byte `at`. Where it is none, the first `broken` bytes are text.
    fn json(&mut self, held: &str, at: usize, broken: usize, only_calls: bool, context: &Context) -> Step {
        let step = match json_at(&mut self.scan, held, at, context) {
            Found::Wait => return Step::Wait,
            Found::None(problem) if only_calls => Step::Broken(broken.max(1), problem),
            Found::None(_) => Step::Content(broken.max(1)),
            Found::Value(end) if only_calls || looks_like_call(&held[at..end]) => calls_of_text(held, at, end, context),
            Found::Value(end) => Step::Content(end),
        };
        self.inside = matches!(step, Step::Calls(..));
        step
    }

    /// Calls as in Python at byte `at`, up to `end` or the end of the answer.
    fn python(&mut self, held: &str, at: usize, end: &[u8], context: &Context) -> Step {
        let from = at.saturating_sub(1).max(self.looked.saturating_sub(end.len()));
        let found = held.as_bytes()[from..].windows(end.len()).position(|window| window == end).map(|n| from + n);
        let Some(stop) = found.or(context.last.then_some(held.len())) else {
            self.looked = held.len();
            return Step::Wait;
        };
        self.looked = 0;
        let items = match python::calls(&held[at.min(stop)..stop]) {
            Ok(items) => items,
            Err(_) if found.is_none() => return Step::Broken(stop, Problem::Unfinished),
            Err(reason) => return Step::Broken(stop, malformed(reason)),
        };
        let calls: Result<Vec<_>, _> =
            items.into_iter().map(|(name, arguments)| call(&name, arguments, None, context)).collect();
        match calls {
            Ok(calls) => {
                self.inside = true;
                Step::Calls(stop, calls.into_iter().map(Ok).collect())
            }
            Err(problem) => Step::Broken(stop, problem),
        }
    }

    /// A bare list of calls as in Python, on one line.
    fn list(&mut self, held: &str, context: &Context) -> Step {
        let inner = held[1..].trim_start_matches(' ');
        let rest = inner.trim_start_matches(|c| is_name_char(c) || c == '.');
        match rest.chars().next() {
            None if !context.last => Step::Wait,
            Some('(') if rest.len() < inner.len() => match self.python(held, 0, b"\n", context) {
                Step::Broken(_, Problem::Malformed { .. } | Problem::Unfinished) => Step::Content(1),
                step => {
                    self.inside = false;
                    step
                }
            },
            _ => Step::Content(1),
        }
    }
}
