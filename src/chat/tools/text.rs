//! Text on its way out: white space next to marks is layout and left out.

use super::answer::Event;

/// Kinds of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Content,
    Reasoning,
}

/// Collects events. White space is kept back until it is known what follows; behind a mark, text of a kind that came before begins a
/// new line.
#[derive(Debug)]
pub(super) struct Out {
    pub(super) events: Vec<Event>,
    /// White space that may turn out to be layout, and its kind.
    blank: String,
    kind: Kind,
    /// Nothing but white space has come since the last mark.
    after_mark: bool,
    /// Nothing but white space has come since the beginning or the last mark.
    fresh: bool,
    /// The last character was a line break.
    broken: bool,
    /// Whether content, and reasoning, have come.
    seen: [bool; 2],
}

impl Out {
    pub(super) fn new() -> Self {
        Self {
            events: Vec::new(),
            blank: String::new(),
            kind: Kind::Content,
            after_mark: false,
            fresh: true,
            broken: false,
            seen: [false; 2],
        }
    }

    /// Whether what comes next begins a line or a part of the answer.
    pub(super) fn line_start(&self) -> bool {
        self.fresh || self.broken
    }

    pub(super) fn text(&mut self, kind: Kind, text: &str) {
        let Some(last) = text.chars().next_back() else { return };
        self.broken = last == '\n';
        self.kind = kind;
        let text = if self.after_mark { text.trim_start() } else { text };
        let body = text.trim_end();
        if !body.is_empty() {
            let seen = std::mem::replace(&mut self.seen[kind as usize], true);
            let line = if seen && self.after_mark { "\n" } else { "" };
            let whole = [line, &std::mem::take(&mut self.blank), body].concat();
            self.emit(kind, whole);
            (self.after_mark, self.fresh) = (false, false);
        }
        self.blank.push_str(&text[body.len()..]);
    }

    /// A mark or a call.
    pub(super) fn mark(&mut self) {
        self.blank.clear();
        (self.after_mark, self.fresh) = (true, true);
    }

    /// White space at the very end is text.
    pub(super) fn finish(&mut self) {
        let blank = std::mem::take(&mut self.blank);
        if !blank.is_empty() {
            self.emit(self.kind, blank);
        }
    }

    fn emit(&mut self, kind: Kind, text: String) {
        self.events.push(match kind {
            Kind::Content => Event::Content(text),
            Kind::Reasoning => Event::Reasoning(text),
        });
    }
}
