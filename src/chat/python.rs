//! Values as Python prints them: templates that print a list or a boolean directly were written for that.

use std::fmt::{Result, Write};

use minijinja::value::{Value, ValueKind};
use minijinja::{Environment, Output, State};

/// Makes `{{ value }}`, the filter `string` and the test `iterable` behave as in Python.
pub(super) fn install(environment: &mut Environment) {
    environment.set_formatter(|out: &mut Output, _: &State, value: &Value| Ok(print(value, out)?));
    environment.add_filter("string", |value: &Value| {
        let mut out = String::new();
        print(value, &mut out).map(|()| out).map_err(minijinja::Error::from)
    });
    environment.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
}

/// `str(value)`: like `repr`, but strings are bare and what is undefined prints nothing.
fn print(value: &Value, out: &mut impl Write) -> Result {
    match value.kind() {
        ValueKind::Undefined => Ok(()),
        ValueKind::String => out.write_str(value.as_str().unwrap_or_default()),
        _ => repr(value, out),
    }
}

fn repr(value: &Value, out: &mut impl Write) -> Result {
    let items = || value.try_iter().into_iter().flatten();
    match value.kind() {
        ValueKind::None => out.write_str("None"),
        ValueKind::Bool => out.write_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::String => repr_string(value.as_str().unwrap_or_default(), out),
        ValueKind::Seq => list(items(), ['[', ']'], out, |item, out| repr(&item, out)),
        ValueKind::Map => list(items(), ['{', '}'], out, |key, out| {
            repr(&key, out)?;
            out.write_str(": ")?;
            repr(&value.get_item(&key).unwrap_or_default(), out)
        }),
        ValueKind::Number if !value.is_integer() => float(value, out),
        _ => write!(out, "{value}"),
    }
}

fn float(value: &Value, out: &mut impl Write) -> Result {
    match f64::try_from(value.clone()).ok().and_then(serde_json::Number::from_f64) {
        Some(finite) => out.write_str(&super::json::number(&finite)),
        None => write!(out, "{value}"),
    }
}

fn list<W: Write>(
    items: impl Iterator<Item = Value>,
    ends: [char; 2],
    out: &mut W,
    mut write: impl FnMut(Value, &mut W) -> Result,
) -> Result {
    out.write_char(ends[0])?;
    for (i, item) in items.enumerate() {
        if i > 0 {
            out.write_str(", ")?;
        }
        write(item, out)?;
    }
    out.write_char(ends[1])
}

/// In single quotes, or in double ones where that saves escapes.
fn repr_string(text: &str, out: &mut impl Write) -> Result {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.write_char(quote)?;
    for c in text.chars() {
        match c {
            '\n' => out.write_str("\\n")?,
            '\r' => out.write_str("\\r")?,
            '\t' => out.write_str("\\t")?,
            c if c == '\\' || c == quote => write!(out, "\\{c}")?,
            c if c.is_control() => write!(out, "\\x{:02x}", u32::from(c))?,
            c => out.write_char(c)?,
        }
    }
    out.write_char(quote)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_print_as_in_python() {
        let cases = [
            ("{{ x }}", ""),
            ("{{ none }} {{ true }} {{ 1 }} {{ 1.0 }} {{ 0.0000001 }}", "None True 1 1.0 1e-07"),
            ("{{ \"it's\" }} {{ [\"it's\", 'a\"b\\n', none] }}", "it's [\"it's\", 'a\"b\\n', None]"),
            ("{{ {'a': [1, false], 'b': {}} }}", "{'a': [1, False], 'b': {}}"),
            ("{{ [true] | string | length }}", "6"),
            (
                "{{ none is iterable }} {{ [] is iterable }} {{ 'a' is iterable }} {{ 1 is iterable }}",
                "False True True False",
            ),
        ];
        let mut environment = Environment::new();
        install(&mut environment);
        for (template, expected) in cases {
            let printed = environment.render_str(template, ()).map_err(|e| e.to_string());
            assert_eq!(printed.as_deref(), Ok(expected), "{template}");
        }
    }
}
