//! Declarations of tools.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::chat::message::kind;
use crate::error::{Error, Result};

/// Bytes of the longest name.
const MAX_NAME: usize = 64;

/// A function that a model may ask to have called. Its JSON is OpenAI's: `{"type": "function", "function": {"name", "description",
/// "parameters"}}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub struct Tool {
    name: String,
    description: String,
    parameters: Map<String, Value>,
}

/// What is wrong with a declaration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToolFault {
    /// The name is empty or missing.
    #[error("it has no name, expected 1 to 64 of the characters a-z A-Z 0-9 _ -")]
    NoName,
    /// The name is too long.
    #[error("its name has {len} bytes, expected at most 64")]
    LongName {
        /// Bytes of the name.
        len: usize,
    },
    /// The name has a character that formats of calls cannot carry.
    #[error("its name contains {found:?}, expected a-z A-Z 0-9 _ -")]
    IllegalName {
        /// The first such character.
        found: char,
    },
    /// Another tool has the name.
    #[error("its name is taken by the tool before, expected one tool a name")]
    Duplicate,
    /// The declaration is not of OpenAI's shape.
    #[error("{part} is {found}, expected {expected}")]
    Shape {
        /// Which part.
        part: &'static str,
        /// What it is.
        found: String,
        /// What it should be.
        expected: &'static str,
    },
}

impl Tool {
    /// A tool that takes the properties of `parameters`, a JSON schema of type `object`.
    ///
    /// # Errors
    /// [`Error::BadTool`] where the name or the schema cannot be used.
    pub fn new(name: impl Into<String>, description: impl Into<String>, parameters: Value) -> Result<Self> {
        let name = name.into();
        let fault = |fault| Error::BadTool { name: name.clone(), fault };
        check_name(&name).map_err(fault)?;
        let parameters = object_schema(parameters).map_err(fault)?;
        Ok(Self { name, description: description.into(), parameters })
    }

    /// A declaration as JSON; the object under `function` alone will do, too. A missing description is empty, missing parameters are none;
    /// further keys are left out.
    ///
    /// # Errors
    /// [`Error::BadTool`] where it is not of that shape, or its name or schema cannot be used.
    pub fn from_json(json: &Value) -> Result<Self> {
        let function = json.get("function").unwrap_or(json);
        let name = function["name"].as_str().unwrap_or_default();
        let shape = |part, value: &Value, expected| Error::BadTool {
            name: name.into(),
            fault: ToolFault::Shape {
                part,
                found: value.as_str().map_or_else(|| kind(value).into(), |s| format!("{s:?}")),
                expected,
            },
        };
        match json.get("type") {
            None => {}
            Some(Value::String(text)) if text == "function" => {}
            Some(other) => return Err(shape("its type", other, "\"function\"")),
        }
        if !function.is_object() {
            return Err(shape("the declaration", function, "an object"));
        }
        let description = match &function["description"] {
            Value::Null => "",
            Value::String(text) => text,
            other => return Err(shape("its description", other, "a string")),
        };
        let parameters = match &function["parameters"] {
            Value::Null => json!({"type": "object", "properties": {}}),
            other => other.clone(),
        };
        Self::new(name, description, parameters)
    }

    /// The declaration as JSON.
    pub fn to_json(&self) -> Value {
        let function = json!({"name": self.name, "description": self.description, "parameters": self.parameters});
        json!({"type": "function", "function": function})
    }

    /// The name: 1 to 64 letters of ASCII, digits, `_` and `-`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it does, for the model to read.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The JSON schema of its arguments, of type `object`.
    pub fn parameters(&self) -> &Map<String, Value> {
        &self.parameters
    }
}

impl TryFrom<Value> for Tool {
    type Error = Error;

    fn try_from(json: Value) -> Result<Self> {
        Self::from_json(&json)
    }
}

impl From<Tool> for Value {
    fn from(tool: Tool) -> Self {
        tool.to_json()
    }
}

/// Whether all tools have names of their own.
///
/// # Errors
/// [`Error::BadTool`] with the second tool of a name.
pub(in crate::chat) fn check_distinct(tools: &[Tool]) -> Result<()> {
    let mut names = std::collections::HashSet::new();
    match tools.iter().find(|tool| !names.insert(tool.name())) {
        Some(tool) => Err(Error::BadTool { name: tool.name.clone(), fault: ToolFault::Duplicate }),
        None => Ok(()),
    }
}

/// Whether a name's character is legal.
pub(super) fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

fn check_name(name: &str) -> Result<(), ToolFault> {
    match name.chars().find(|c| !is_name_char(*c)) {
        _ if name.is_empty() => Err(ToolFault::NoName),
        Some(found) => Err(ToolFault::IllegalName { found }),
        None if name.len() > MAX_NAME => Err(ToolFault::LongName { len: name.len() }),
        None => Ok(()),
    }
}

fn object_schema(schema: Value) -> Result<Map<String, Value>, ToolFault> {
    let shape = |part, value: &Value, expected| {
        let found = value.as_str().map_or_else(|| kind(value).to_owned(), |text| format!("{text:?}"));
        Err(ToolFault::Shape { part, found, expected })
    };
    let Value::Object(mut map) = schema else { return shape("the schema of its parameters", &schema, "an object") };
    match map.get("type") {
        Some(Value::String(text)) if text == "object" => {}
        // An empty schema, and one of properties that leaves out their type, mean an object.
        None => {
            map.insert("type".into(), "object".into());
        }
        Some(other) => return shape("the type of its parameters", other, "\"object\""),
    }
    match map.get("properties") {
        None | Some(Value::Object(_)) => Ok(map),
        Some(other) => shape("properties of its parameters", other, "an object"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_in_both_shapes() {
        let parameters = json!({"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]});
        let function = json!({"name": "get-it_2", "description": "Gets it", "parameters": parameters, "strict": true});
        let whole = Tool::from_json(&json!({"type": "function", "function": function})).expect("a tool");
        assert_eq!(Tool::from_json(&function).expect("a tool"), whole);
        assert_eq!(Tool::from_json(&whole.to_json()).expect("a tool"), whole);
        assert_eq!((whole.name(), whole.description()), ("get-it_2", "Gets it"));
        let bare = Tool::from_json(&json!({"name": "f"})).expect("a tool");
        assert_eq!(Value::Object(bare.parameters().clone()), json!({"type": "object", "properties": {}}));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let named = |name: &str| json!({"type": "function", "function": {"name": name}});
        let with = |parameters: Value| json!({"name": "f", "parameters": parameters});
        let shape = |part, found: &str, expected| ToolFault::Shape { part, found: found.into(), expected };
        let cases = [
            (named(""), ToolFault::NoName),
            (json!({"function": {}}), ToolFault::NoName),
            (named("a b"), ToolFault::IllegalName { found: ' ' }),
            (named("größe"), ToolFault::IllegalName { found: 'ö' }),
            (named(&"a".repeat(65)), ToolFault::LongName { len: 65 }),
            (json!({"type": "retrieval"}), shape("its type", "\"retrieval\"", "\"function\"")),
            (json!([]), shape("the declaration", "an array", "an object")),
            (json!({"name": "f", "description": 3}), shape("its description", "a number", "a string")),
            (with(json!([])), shape("the schema of its parameters", "an array", "an object")),
            (with(json!({"type": "string"})), shape("the type of its parameters", "\"string\"", "\"object\"")),
            (with(json!({"properties": []})), shape("properties of its parameters", "an array", "an object")),
        ];
        for (json, expected) in cases {
            match Tool::from_json(&json) {
                Err(Error::BadTool { fault, .. }) => assert_eq!(fault, expected, "{json}"),
                other => panic!("{json}: {other:?}"),
            }
        }
        let twice = [Tool::from_json(&named("f")).expect("a tool"), Tool::from_json(&named("f")).expect("a tool")];
        assert!(matches!(check_distinct(&twice), Err(Error::BadTool { fault: ToolFault::Duplicate, .. })));
        assert!(check_distinct(&twice[..1]).is_ok());
    }
}
