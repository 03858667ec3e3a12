//! Calls as bare JSON, `{"name": …, "parameters": {…}}`, at the beginning of a line or behind `<|python_tag|>`.

use super::call::{Context, Found, Reader, Step, before_mark, blanks, calls_of_text, json_at, looks_like_call};
use super::scan::JsonScan;

pub(super) const TAG: &str = "<|python_tag|>";

/// Reads bare calls; several are separated by white space or `;`.
#[derive(Debug, Default)]
pub(super) struct Llama3 {
    bare: Bare,
    scan: JsonScan,
    /// A call has been read; another may follow.
    after: bool,
}

impl Reader for Llama3 {
    fn step(&mut self, held: &str, context: &Context) -> Step {
        if self.after {
            let layout = held.len() - held.trim_start_matches([' ', '\t', '\r', '\n', ';']).len();
            if layout > 0 {
                return Step::Mark(layout);
            }
            self.after = false;
        }
        let step = if Bare::begins(held, context) {
            self.bare.step(held, context)
        } else {
            match before_mark(held, &[TAG], context.last) {
                (0, Some(_)) => self.tagged(held, context),
                (0, None) => Step::Wait,
                (n, _) => self.bare.step(&held[..n], context),
            }
        };
        self.after = matches!(step, Step::Calls(..));
        step
    }
}

impl Llama3 {
    fn tagged(&mut self, held: &str, context: &Context) -> Step {
        let start = TAG.len() + blanks(&held[TAG.len()..]);
        match json_at(&mut self.scan, held, start, context) {
            Found::Wait => Step::Wait,
            Found::None(problem) => Step::Broken(TAG.len(), problem),
            Found::Value(end) => calls_of_text(held, start, end, context),
        }
    }
}

/// Finds calls that nothing marks.
#[derive(Debug, Default)]
pub(super) struct Bare(JsonScan);

impl Bare {
    /// Whether a call may begin here.
    pub(super) fn begins(held: &str, context: &Context) -> bool {
        context.line_start && held.starts_with('{')
    }

    /// The call that begins here, or text up to the next line that begins with a brace.
    pub(super) fn step(&mut self, held: &str, context: &Context) -> Step {
        if !Self::begins(held, context) {
            return Step::Content(held.find("\n{").map_or(held.len(), |at| at + 1));
        }
        match json_at(&mut self.0, held, 0, context) {
            Found::Wait => Step::Wait,
            Found::None(_) => Step::Content(1),
            Found::Value(end) if looks_like_call(&held[..end]) => calls_of_text(held, 0, end, context),
            Found::Value(end) => Step::Content(end),
        }
    }
}
