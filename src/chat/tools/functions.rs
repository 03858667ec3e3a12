//! Calls of Gemma's own making: `call:name{key:value,…}` between two marks, with a third mark around each text.

use serde_json::{Map, Value};

use super::answer::Problem;
use super::call::{Context, Reader, Step, before_mark, call, malformed};

/// Nesting of arguments that is read.
const MAX_DEPTH: usize = 100;

/// The marks of a family of models.
#[derive(Debug)]
pub(super) struct Marks {
    pub(super) open: &'static str,
    pub(super) close: &'static str,
    /// On both sides of a text.
    pub(super) quote: &'static str,
}

pub(super) const FUNCTION_GEMMA: Marks =
    Marks { open: "<start_function_call>", close: "<end_function_call>", quote: "<escape>" };
pub(super) const GEMMA4: Marks = Marks { open: "<|tool_call>", close: "<tool_call|>", quote: "<|\"|>" };

/// Reads such calls.
#[derive(Debug)]
pub(super) struct Functions {
    marks: &'static Marks,
    /// In a call: the byte to look at next for its end, and whether that is inside a text.
    looked: Option<(usize, bool)>,
}

impl Functions {
    pub(super) fn new(marks: &'static Marks) -> Self {
        Self { marks, looked: None }
    }

    /// First and last byte of the closing mark.
    fn end(&mut self, held: &str) -> Option<(usize, usize)> {
        let Marks { open, close, quote } = self.marks;
        let (mut at, mut quoted) = self.looked.take().unwrap_or((open.len(), false));
        loop {
            let marks = if quoted { &[*quote][..] } else { &[*quote, *close] };
            let (n, mark) = before_mark(&held[at..], marks, false);
            at += n;
            let Some(mark) = mark else {
                self.looked = Some((at, quoted));
                return None;
            };
            if mark == *close {
                return Some((at, at + close.len()));
            }
            at += mark.len();
            quoted = !quoted;
        }
    }
}

impl Reader for Functions {
    fn step(&mut self, held: &str, context: &Context) -> Step {
        let open = self.marks.open;
        match before_mark(held, &[open], context.last) {
            (0, Some(_)) => {}
            (0, None) => return Step::Wait,
            (n, _) => return Step::Content(n),
        }
        let (body, end) = match self.end(held) {
            Some(found) => found,
            None if context.last => (held.len(), held.len()),
            None => return Step::Wait,
        };
        self.looked = None;
        match read(&held[open.len()..body], self.marks.quote, context) {
            Ok(call) => Step::Calls(end, vec![Ok(call)]),
            Err(_) if body == end => Step::Broken(open.len(), Problem::Unfinished),
            Err(problem) => Step::Broken(end, problem),
        }
    }
}

fn read(body: &str, quote: &str, context: &Context) -> Result<super::call::RawCall, Problem> {
    let body = body.trim();
    let rest = body.strip_prefix("call:").ok_or_else(|| malformed("no \"call:\" behind the mark"))?;
    let (name, _) = rest.split_once('{').ok_or_else(|| malformed("no arguments behind its name"))?;
    let mut text = Arguments { rest: &rest[name.len()..], quote };
    let arguments = text.value(0).map_err(malformed)?;
    match text.rest.trim() {
        "" => call(name.trim(), arguments, None, context),
        more => Err(malformed(format!("{more:?} behind its arguments"))),
    }
}

/// Arguments that are being read.
struct Arguments<'a> {
    rest: &'a str,
    quote: &'a str,
}

impl<'a> Arguments<'a> {
    fn value(&mut self, depth: usize) -> Result<Value, String> {
        if depth > MAX_DEPTH {
            return Err(format!("arguments nested deeper than {MAX_DEPTH}"));
        }
        self.rest = self.rest.trim_start();
        if self.rest.starts_with(self.quote) {
            return self.quoted().map(Value::from);
        }
        match self.rest.as_bytes().first() {
            Some(b'{') => {
                let mut map = Map::new();
                self.items('}', |text| {
                    let key = text.key()?;
                    map.insert(key, text.value(depth + 1)?);
                    Ok(())
                })?;
                Ok(map.into())
            }
            Some(b'[') => {
                let mut items = Vec::new();
                self.items(']', |text| {
                    items.push(text.value(depth + 1)?);
                    Ok(())
                })?;
                Ok(items.into())
            }
            _ => {
                let bare = self.until([',', '}', ']'])?.trim();
                Ok(serde_json::from_str(bare).unwrap_or_else(|_| bare.into()))
            }
        }
    }

    /// Items between brackets, the first of which is here, separated by commas.
    fn items(&mut self, close: char, mut item: impl FnMut(&mut Self) -> Result<(), String>) -> Result<(), String> {
        self.rest = self.rest[1..].trim_start();
        if let Some(rest) = self.rest.strip_prefix(close) {
            self.rest = rest;
            return Ok(());
        }
        loop {
            item(self)?;
            self.rest = self.rest.trim_start();
            let found = self.rest.chars().next();
            self.rest = &self.rest[found.map_or(0, char::len_utf8)..];
            match found {
                Some(',') => {}
                Some(c) if c == close => return Ok(()),
                found => return Err(format!("{found:?} behind an argument, expected ',' or {close:?}")),
            }
        }
    }

    fn key(&mut self) -> Result<String, String> {
        self.rest = self.rest.trim_start();
        let key = if self.rest.starts_with(self.quote) { self.quoted()? } else { self.until([':'; 3])? };
        let key = key.trim();
        self.rest = self.rest.trim_start().strip_prefix(':').ok_or_else(|| format!("no ':' behind the key {key:?}"))?;
        Ok(key.to_owned())
    }

    fn quoted(&mut self) -> Result<&'a str, String> {
        let (text, rest) = self.rest[self.quote.len()..].split_once(self.quote).ok_or("a text without end")?;
        self.rest = rest;
        Ok(text)
    }

    fn until(&mut self, ends: [char; 3]) -> Result<&'a str, String> {
        let at = self.rest.find(ends).ok_or("arguments without end")?;
        let (text, rest) = self.rest.split_at(at);
        self.rest = rest;
        Ok(text)
    }
}
