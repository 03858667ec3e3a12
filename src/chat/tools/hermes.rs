//! Calls between tags: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`.

use super::call::{Context, Found, Reader, Step, before_mark, blanks, calls_of_text, json_at, may_become};
use super::scan::JsonScan;

pub(super) const OPEN: &str = "<tool_call>";
pub(super) const CLOSE: &str = "</tool_call>";

/// Reads calls between tags. A missing closing tag is forgiven.
#[derive(Debug, Default)]
pub(super) struct Hermes {
    scan: JsonScan,
    /// A call has been read, its closing tag has not.
    inside: bool,
}

impl Reader for Hermes {
    fn step(&mut self, held: &str, context: &Context) -> Step {
        if self.inside {
            let at = blanks(held);
            if !context.last && may_become(&held[at..], CLOSE) {
                return Step::Wait;
            }
            self.inside = false;
            if held[at..].starts_with(CLOSE) {
                return Step::Mark(at + CLOSE.len());
            }
        }
        match before_mark(held, &[OPEN], context.last) {
            (0, Some(_)) => self.call(held, context),
            (0, None) => Step::Wait,
            (n, _) => Step::Content(n),
        }
    }
}

impl Hermes {
    fn call(&mut self, held: &str, context: &Context) -> Step {
        let start = OPEN.len() + blanks(&held[OPEN.len()..]);
        match json_at(&mut self.scan, held, start, context) {
            Found::Wait => Step::Wait,
            Found::None(problem) => Step::Broken(OPEN.len(), problem),
            Found::Value(end) => {
                let step = calls_of_text(held, start, end, context);
                self.inside = matches!(step, Step::Calls(..));
                step
            }
        }
    }
}
