//! The `tojson` filter as Python's `json.dumps` writes it: templates were written, and models trained, with its blanks.

use std::fmt::Write;

use minijinja::value::{Kwargs, Value};
use minijinja::{Error, ErrorKind};

/// How to write.
struct Style {
    indent: Option<usize>,
    ascii: bool,
    sort_keys: bool,
    item: String,
    key: String,
}

/// The filter, with the arguments of `json.dumps` that templates use: `indent`, `ensure_ascii`, `separators`,
/// `sort_keys`.
pub(super) fn tojson(value: Value, args: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = args.get("indent")?;
    let separators: Option<(String, String)> = match args.get::<Option<Vec<String>>>("separators")?.as_deref() {
        Some([item, key]) => Some((item.clone(), key.clone())),
        _ => None,
    };
    let (item, key) = separators.unwrap_or_else(|| (if indent.is_some() { "," } else { ", " }.into(), ": ".into()));
    let style = Style {
        indent,
        ascii: args.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        sort_keys: args.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        item,
        key,
    };
    args.assert_all_used()?;
    let json = serde_json::to_value(&value)
        .map_err(|error| Error::new(ErrorKind::InvalidOperation, "not a JSON value").with_source(error))?;
    let mut out = String::new();
    style.write(&json, 0, &mut out);
    Ok(out)
}

/// JSON as `json.dumps` writes it without arguments, but for characters outside ASCII, which stay.
pub(super) fn dumps(value: &serde_json::Value) -> String {
    let style = Style { indent: None, ascii: false, sort_keys: false, item: ", ".into(), key: ": ".into() };
    let mut out = String::new();
    style.write(value, 0, &mut out);
    out
}

impl Style {
    fn write(&self, value: &serde_json::Value, depth: usize, out: &mut String) {
        match value {
            serde_json::Value::Null => out.push_str("null"),
            serde_json::Value::Bool(v) => out.push_str(if *v { "true" } else { "false" }),
            serde_json::Value::Number(v) => out.push_str(&number(v)),
            serde_json::Value::String(v) => self.string(v, out),
            serde_json::Value::Array(items) => self.list(['[', ']'], items, depth, out, |style, item, out| {
                style.write(item, depth + 1, out);
            }),
            serde_json::Value::Object(map) => {
                let mut entries: Vec<_> = map.iter().collect();
                if self.sort_keys {
                    entries.sort_by_key(|(key, _)| *key);
                }
                self.list(['{', '}'], &entries, depth, out, |style, (key, value), out| {
                    style.string(key, out);
                    out.push_str(&style.key);
                    style.write(value, depth + 1, out);
                });
            }
        }
    }

    fn list<T>(
        &self,
        ends: [char; 2],
        items: &[T],
        depth: usize,
        out: &mut String,
        write: impl Fn(&Self, &T, &mut String),
    ) {
        out.push(ends[0]);
        for (i, item) in items.iter().enumerate() {
            if i > 0 {
                out.push_str(&self.item);
            }
            self.new_line(depth + 1, out);
            write(self, item, out);
        }
        if !items.is_empty() {
            self.new_line(depth, out);
        }
        out.push(ends[1]);
    }

    fn new_line(&self, depth: usize, out: &mut String) {
        if let Some(indent) = self.indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent * depth));
        }
    }

    fn string(&self, text: &str, out: &mut String) {
        out.push('"');
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                c if c < ' ' || (self.ascii && !c.is_ascii()) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        // Writing to a string cannot fail.
                        let _ = write!(out, "\\u{unit:04x}");
                    }
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }
}

/// As Python writes it: exponents have a sign and two digits.
pub(super) fn number(number: &serde_json::Number) -> String {
    let text = number.to_string();
    match text.split_once('e') {
        Some((digits, exponent)) => {
            let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
            format!("{digits}e{sign}{:0>2}", exponent.trim_start_matches('+'))
        }
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_as_python_writes_it() {
        let cases = [
            ("{{ x | tojson }}", r#"{"b": [1, 2.5, null, true], "a": {}, "é": "<\"\n\u0001>"}"#),
            (
                "{{ x | tojson(separators=[',', ':'], sort_keys=true) }}",
                r#"{"a":{},"b":[1,2.5,null,true],"é":"<\"\n\u0001>"}"#,
            ),
            ("{{ 'é😀' | tojson(ensure_ascii=true) }}", r#""\u00e9\ud83d\ude00""#),
            ("{{ [[], [1]] | tojson(indent=2) }}", "[\n  [],\n  [\n    1\n  ]\n]"),
            ("{{ [1e20, 1e-7, 0.0001, -3.0] | tojson }}", "[1e+20, 1e-07, 0.0001, -3.0]"),
        ];
        let x = serde_json::json!({"b": [1, 2.5, null, true], "a": {}, "é": "<\"\n\u{1}>"});
        let mut environment = minijinja::Environment::new();
        environment.add_filter("tojson", tojson);
        for (template, expected) in cases {
            let context = minijinja::context! { x => minijinja::Value::from_serialize(&x) };
            let printed = environment.render_str(template, context).map_err(|e| e.to_string());
            assert_eq!(printed.as_deref(), Ok(expected), "{template}");
        }
    }
}
