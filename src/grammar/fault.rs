//! The parser's failures as typed errors.

use std::panic::AssertUnwindSafe;

use llguidance::TokenParser;
use llguidance::api::StopReason;
use llguidance::panic_utils::catch_unwind;

use super::{Grammar, error};
use crate::error::{Error, GrammarFault};

/// Longest message that is passed on, in characters.
const MAX_MESSAGE: usize = 400;

/// Words of messages and what they mean, the first that is found deciding.
const WORDS: [(&str, GrammarFault); 20] = [
    ("panic:", GrammarFault::Internal),
    ("nsatisfiable", GrammarFault::Unsatisfiable),
    ("Unable to determine", GrammarFault::TooComplex),
    ("can't determine", GrammarFault::TooComplex),
    ("too large", GrammarFault::TooComplex),
    ("too big", GrammarFault::TooComplex),
    ("too deep", GrammarFault::TooComplex),
    ("too many", GrammarFault::TooComplex),
    ("limit", GrammarFault::TooComplex),
    ("exceeded", GrammarFault::TooComplex),
    ("fuel", GrammarFault::TooComplex),
    ("Unimplemented", GrammarFault::Unsupported),
    ("Unknown format", GrammarFault::Unsupported),
    ("supported", GrammarFault::Unsupported),
    ("not disjoint", GrammarFault::Unsupported),
    ("Failed to generate", GrammarFault::Unsupported),
    ("Reference segment", GrammarFault::UnresolvedRef),
    ("regex parse error", GrammarFault::BadRegex),
    ("invalid regex", GrammarFault::BadRegex),
    ("on %regex", GrammarFault::BadLark),
];

/// Runs a part of the parser; a panic in it becomes an error where panics unwind.
pub(super) fn guarded<T>(run: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    catch_unwind(AssertUnwindSafe(run))
}

/// Why a grammar was refused.
pub(super) fn of_grammar(grammar: &Grammar, cause: &anyhow::Error) -> Error {
    let message = format!("{cause:#}");
    let otherwise = match grammar {
        Grammar::JsonSchema(_) | Grammar::JsonObject => GrammarFault::InvalidSchema,
        Grammar::Regex(_) => GrammarFault::BadRegex,
        Grammar::Lark(_) => GrammarFault::BadLark,
    };
    let found = WORDS.into_iter().find(|(word, _)| message.contains(word));
    let fault = found.map_or(otherwise, |(_, fault)| fault);
    if message.contains("oneOf constraints") {
        let reason = "oneOf whose alternatives may overlap; expected different types, a required constant property that tells them apart, or anyOf";
        return error(fault, reason);
    }
    error(fault, tidy(&message, !matches!(grammar, Grammar::Regex(_))))
}

/// Why a constraint cannot go on.
pub(super) fn of_parser(parser: &TokenParser, cause: &anyhow::Error) -> Error {
    let message = format!("{cause:#}");
    match parser.stop_reason() {
        _ if message.starts_with("panic:") => error(GrammarFault::Internal, tidy(&message, false)),
        StopReason::NoExtensionBias => error(GrammarFault::Unsatisfiable, "no token continues the text"),
        StopReason::LexerTooComplex | StopReason::ParserTooComplex => {
            error(GrammarFault::TooComplex, tidy(&message, false))
        }
        _ => error(GrammarFault::Internal, tidy(&message, false)),
    }
}

/// A message on one line, without pictures of the source and backtraces, a place written out or left away.
fn tidy(message: &str, with_place: bool) -> String {
    let message = message.split("<backtrace>").next().unwrap_or(message);
    let words = message.lines().filter(|line| !is_picture(line)).flat_map(str::split_whitespace);
    let message = words.collect::<Vec<_>>().join(" ");
    let (place, rest) = place(&message);
    let text = match place {
        Some((line, column)) if with_place => format!("line {line}, column {column}: {rest}"),
        _ => rest.to_owned(),
    };
    let is_long = text.chars().nth(MAX_MESSAGE).is_some();
    text.chars().take(MAX_MESSAGE).chain(is_long.then_some('…')).collect()
}

/// Whether a line shows the source, or points at a place in it.
fn is_picture(line: &str) -> bool {
    let line = line.trim();
    let text = line.trim_start_matches(|c: char| c.is_ascii_digit());
    (text.len() < line.len() && text.starts_with(" |")) || (!line.is_empty() && line.bytes().all(|b| b == b'^'))
}

/// Line and column from `at 2(5): ...` or `2(5): ...`, and the rest.
fn place(message: &str) -> (Option<(&str, &str)>, &str) {
    let found = || {
        let (place, rest) = message.split_once(": ")?;
        let (line, column) = place.strip_prefix("at ").unwrap_or(place).strip_suffix(')')?.split_once('(')?;
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        (is_number(line) && is_number(column)).then_some(((line, column), rest))
    };
    found().map_or((None, message), |(place, rest)| (Some(place), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_one_line_with_their_place() {
        let cases = [
            (
                "at 1(8): unknown name: \"foo\"\n   1 | start: foo\n              ^\n",
                "line 1, column 8: unknown name: \"foo\"",
            ),
            ("2(5): Expected token ':'", "line 2, column 5: Expected token ':'"),
            (
                "regex parse error:\n    a(\n     ^\nerror: unclosed group",
                "regex parse error: a( error: unclosed group",
            ),
            ("no start rule found", "no start rule found"),
            ("panic: boom\n<backtrace>\n 0: x", "panic: boom"),
            ("f(x): y", "f(x): y"),
        ];
        for (message, wanted) in cases {
            assert_eq!(tidy(message, true), wanted);
        }
        assert_eq!(tidy("at 1(8): invalid", false), "invalid");
        assert_eq!(tidy(&"é".repeat(500), true).chars().count(), MAX_MESSAGE + 1);
    }
}
