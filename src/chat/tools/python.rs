//! Calls as Python writes them, with literals as arguments: `[f(place="Oslo", days=2), g()]`.

use serde_json::{Map, Value};

/// Nesting of arguments that is read.
const MAX_DEPTH: usize = 100;

/// The calls in `text`: a list of them, or one behind the other. `print(…)` around a call is taken away.
///
/// # Errors
/// What was found in place of a call.
pub(super) fn calls(text: &str) -> Result<Vec<(String, Value)>, String> {
    let mut source = Source { rest: text.trim() };
    let mut calls = Vec::new();
    let list = source.take('[');
    loop {
        calls.push(source.call()?);
        while source.take(',') || source.take(';') {}
        if source.rest.is_empty() || list && source.rest.starts_with(']') {
            break;
        }
    }
    if list != source.take(']') || !source.rest.is_empty() {
        return Err(source.unexpected("the end"));
    }
    Ok(calls)
}

struct Source<'a> {
    /// Never begins with white space.
    rest: &'a str,
}

impl<'a> Source<'a> {
    fn skip(&mut self, n: usize) {
        self.rest = self.rest[n..].trim_start();
    }

    fn take(&mut self, c: char) -> bool {
        let taken = self.rest.starts_with(c);
        if taken {
            self.skip(c.len_utf8());
        }
        taken
    }

    fn need(&mut self, c: char) -> Result<(), String> {
        if self.take(c) { Ok(()) } else { Err(self.unexpected(&format!("{c:?}"))) }
    }

    fn unexpected(&self, expected: &str) -> String {
        match self.rest.chars().next() {
            Some(found) => format!("{found:?}, expected {expected}"),
            None => format!("it ends, expected {expected}"),
        }
    }

    fn word(&mut self) -> &'a str {
        let len = self.rest.find(|c: char| !(c.is_alphanumeric() || "_-.+".contains(c))).unwrap_or(self.rest.len());
        let word = &self.rest[..len];
        self.skip(len);
        word
    }

    fn call(&mut self) -> Result<(String, Value), String> {
        let name = self.word();
        if name.is_empty() {
            return Err(self.unexpected("a name"));
        }
        self.need('(')?;
        if name == "print" {
            let inner = self.call()?;
            self.need(')')?;
            return Ok(inner);
        }
        let mut arguments = Map::new();
        while !self.take(')') {
            let key = self.word().to_owned();
            self.need('=')?;
            arguments.insert(key, self.value(0)?);
            if !self.take(',') && !self.rest.starts_with(')') {
                return Err(self.unexpected("',' or ')'"));
            }
        }
        Ok((name.strip_prefix("default_api.").unwrap_or(name).to_owned(), arguments.into()))
    }

    fn value(&mut self, depth: usize) -> Result<Value, String> {
        if depth > MAX_DEPTH {
            return Err(format!("arguments nested deeper than {MAX_DEPTH}"));
        }
        match self.rest.chars().next() {
            Some(quote @ ('"' | '\'')) => self.text(quote).map(Value::from),
            Some('[') => {
                self.skip(1);
                let mut items = Vec::new();
                while !self.take(']') {
                    items.push(self.value(depth + 1)?);
                    if !self.take(',') && !self.rest.starts_with(']') {
                        return Err(self.unexpected("',' or ']'"));
                    }
                }
                Ok(items.into())
            }
            Some('{') => {
                self.skip(1);
                let mut map = Map::new();
                while !self.take('}') {
                    let quote = self.rest.chars().next().filter(|c| matches!(c, '"' | '\''));
                    let key = self.text(quote.ok_or_else(|| self.unexpected("a key in quotes"))?)?;
                    self.need(':')?;
                    map.insert(key, self.value(depth + 1)?);
                    if !self.take(',') && !self.rest.starts_with('}') {
                        return Err(self.unexpected("',' or '}'"));
                    }
                }
                Ok(map.into())
            }
            _ => match self.word() {
                "True" | "true" => Ok(true.into()),
                "False" | "false" => Ok(false.into()),
                "None" | "null" => Ok(Value::Null),
                "" => Err(self.unexpected("a value")),
                word => match serde_json::from_str(word) {
                    Ok(number @ Value::Number(_)) => Ok(number),
                    _ => Err(format!("{word:?}, expected a literal")),
                },
            },
        }
    }

    fn text(&mut self, quote: char) -> Result<String, String> {
        let mut out = String::new();
        let mut chars = self.rest[1..].char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                c if c == quote => {
                    self.skip(1 + at + 1);
                    return Ok(out);
                }
                '\\' => match chars.next().map(|(_, c)| c) {
                    Some('n') => out.push('\n'),
                    Some('t') => out.push('\t'),
                    Some('r') => out.push('\r'),
                    Some(kind @ ('x' | 'u' | 'U')) => {
                        let len = match kind {
                            'x' => 2,
                            'u' => 4,
                            _ => 8,
                        };
                        let digits: String = chars.by_ref().take(len).map(|(_, c)| c).collect();
                        let code = u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32);
                        out.push(code.ok_or_else(|| format!("\\{kind}{digits} is no character"))?);
                    }
                    Some(c @ ('\\' | '\'' | '"')) => out.push(c),
                    Some(c) => out.extend(['\\', c]),
                    None => break,
                },
                c => out.push(c),
            }
        }
        Err("a text without end".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn calls_with_literals() {
        let f = |arguments: Value| ("f".to_owned(), arguments);
        let cases = [
            ("f()", vec![f(json!({}))]),
            ("print(default_api.f(a = 1,))", vec![f(json!({"a": 1}))]),
            (
                "[f(a=-1.5), f(b='it\\'s', c=\"é)\\n\\x41\\u00e9\")]",
                vec![f(json!({"a": -1.5})), f(json!({"b": "it's", "c": "é)\nAé"}))],
            ),
            (
                "f(a=[1, [True], {'k': None, \"l\": []}])\nf()",
                vec![f(json!({"a": [1, [true], {"k": null, "l": []}]})), f(json!({}))],
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(calls(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_call() {
        let deep = format!("f(a={})", "[".repeat(MAX_DEPTH + 2));
        for text in [
            "",
            "f",
            "f(",
            "f(1)",
            "f(a)",
            "f(a=)",
            "f(a=b)",
            "f(a='x)",
            "[f()",
            "f())",
            "f(a=1 b=2)",
            "f(a='\\ud800')",
            "[]",
            &deep,
        ] {
            assert!(calls(text).is_err(), "{text}");
        }
    }
}
