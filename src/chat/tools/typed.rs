//! Rules for arguments in Gemma's own notation, from a JSON schema.

use serde_json::{Map, Value};

use super::grammar::literal;

/// Nesting of a schema that is followed; deeper values may be anything.
const MAX_DEPTH: usize = 32;

/// Rules in the making. What a schema says beyond types, properties, items and enumerations is not enforced.
pub(super) struct Typed {
    pub(super) rules: Vec<String>,
    /// The mark around a text.
    quote: String,
    n_objects: usize,
}

impl Typed {
    /// With `quote` around texts; `text` is the rule of a text with the mark behind it.
    pub(super) fn new(text: &str, quote: String) -> Self {
        let rules = vec![
            format!("string: {quote} {text}"),
            "INTEGER: /-?(0|[1-9][0-9]{0,18})/".to_owned(),
            "NUMBER: /-?(0|[1-9][0-9]{0,18})(\\.[0-9]{1,18})?([eE][+-]?[0-9]{1,2})?/".to_owned(),
            "KEY: /[A-Za-z_][A-Za-z0-9_]*/".to_owned(),
            "boolean: \"true\" | \"false\"".to_owned(),
            "list: \"[\" (any (\",\" any)*)? \"]\"".to_owned(),
            "object: \"{\" (KEY \":\" any (\",\" KEY \":\" any)*)? \"}\"".to_owned(),
            "any: string | NUMBER | boolean | \"null\" | list | object".to_owned(),
        ];
        Self { rules, quote, n_objects: 0 }
    }

    /// The name of a rule for an object: its properties in the order of their names, as templates print them.
    pub(super) fn object(&mut self, schema: &Map<String, Value>, depth: usize) -> String {
        let empty = Map::new();
        let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
        if properties.is_empty() && schema.get("additionalProperties") != Some(&Value::Bool(false)) && depth > 0 {
            return "object".into();
        }
        let required = |key: &str| {
            schema.get("required").and_then(Value::as_array).is_some_and(|keys| keys.iter().any(|k| k == key))
        };
        let mut keys: Vec<&String> = properties.keys().collect();
        keys.sort_by_key(|key| key.to_lowercase());
        let number = self.n_objects;
        self.n_objects += 1;
        // Two rules a property: it comes first, or behind another and a comma.
        let next =
            |i: usize, state: &str| if i < keys.len() { format!(" {state}_{number}_{i}") } else { String::new() };
        for (i, key) in keys.iter().enumerate() {
            let value = self.value(&properties[*key], depth + 1);
            for (state, comma) in [("first", ""), ("more", ",")] {
                let with = format!("{} {value}{}", literal(&format!("{comma}{key}:")), next(i + 1, "more"));
                let without = next(i + 1, state);
                self.rules.push(match (required(key), without.is_empty()) {
                    (true, _) => format!("{state}_{number}_{i}: {with}"),
                    (false, true) => format!("{state}_{number}_{i}: ({with})?"),
                    (false, false) => format!("{state}_{number}_{i}: {with} |{without}"),
                });
            }
        }
        let name = format!("object_{number}");
        self.rules.push(format!("{name}: \"{{\"{} \"}}\"", next(0, "first")));
        name
    }

    fn value(&mut self, schema: &Value, depth: usize) -> String {
        if depth > MAX_DEPTH {
            return "any".into();
        }
        if let Some(allowed) =
            schema["enum"].as_array().or(schema.get("const").map(std::slice::from_ref).map(<[_]>::to_vec).as_ref())
        {
            return self.constants(allowed);
        }
        if let Some(several) = schema["anyOf"].as_array().or(schema["oneOf"].as_array()) {
            let rules = several.iter().map(|schema| self.value(schema, depth + 1)).collect();
            return either(rules);
        }
        let kinds: Vec<&str> = match &schema["type"] {
            Value::String(kind) => vec![kind],
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
            _ => vec![],
        };
        let mut rules: Vec<String> = kinds.iter().map(|kind| self.kind(kind, schema, depth)).collect();
        if schema["nullable"] == true {
            rules.push("\"null\"".into());
        }
        either(rules)
    }

    fn kind(&mut self, kind: &str, schema: &Value, depth: usize) -> String {
        match (kind, schema) {
            ("string" | "boolean", _) => kind.into(),
            ("integer", _) => "INTEGER".into(),
            ("number", _) => "NUMBER".into(),
            ("null", _) => "\"null\"".into(),
            ("array", _) if schema["items"].is_object() => {
                let item = self.value(&schema["items"], depth + 1);
                format!("\"[\" ({item} (\",\" {item})*)? \"]\"")
            }
            ("array", _) => "list".into(),
            ("object", Value::Object(schema)) => self.object(schema, depth),
            _ => "any".into(),
        }
    }

    fn constants(&self, allowed: &[Value]) -> String {
        let one = |value: &Value| match value {
            Value::String(text) => self.quoted(text),
            Value::Array(_) | Value::Object(_) => "any".into(),
            other => literal(&other.to_string()),
        };
        either(allowed.iter().map(one).collect())
    }

    fn quoted(&self, text: &str) -> String {
        match text {
            "" => format!("{0} {0}", self.quote),
            text => format!("{0} {1} {0}", self.quote, literal(text)),
        }
    }
}

/// One of several; anything where there are none.
fn either(rules: Vec<String>) -> String {
    match rules.len() {
        0 => "any".into(),
        1 => rules.into_iter().collect(),
        _ => format!("({})", rules.join(" | ")),
    }
}
