//! Messages of a conversation, in the shape that OpenAI's interface and most templates share.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};

/// One message of a conversation. Parts that are absent are absent from its JSON, too: templates ask whether they are there.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user`, `assistant`, `tool`, or what else the template knows.
    pub role: String,
    /// The text; JSON's `null` is read as none.
    #[serde(default, deserialize_with = "null_as_default")]
    pub content: String,
    /// What the assistant thought before it answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// Tools the assistant called.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// The call that a message of role `tool` answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// The tool that a message of role `tool` comes from, or who speaks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Further fields that templates read.
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

impl Message {
    /// A message of text.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into(), ..Self::default() }
    }

    /// What a tool gave for `call`.
    pub fn tool_result(call: &ToolCall, content: impl Into<String>) -> Self {
        let (id, name) = (Some(call.id.clone()), Some(call.name.clone()));
        Self { tool_call_id: id, name, ..Self::new("tool", content) }
    }
}

fn null_as_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(from)?.unwrap_or_default())
}

/// A call of a tool. Its JSON is OpenAI's, `{"id", "type": "function", "function": {"name", "arguments"}}`, with the arguments as an
/// object, which templates want; read are arguments as an object or as its JSON text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "CallJson", into = "Value")]
pub struct ToolCall {
    /// Names the call in the conversation; may be empty.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// Arguments by name.
    pub arguments: Map<String, Value>,
}

impl From<ToolCall> for Value {
    fn from(call: ToolCall) -> Self {
        let function = json!({"name": call.name, "arguments": call.arguments});
        match call.id.as_str() {
            "" => json!({"type": "function", "function": function}),
            id => json!({"id": id, "type": "function", "function": function}),
        }
    }
}

#[derive(Deserialize)]
struct CallJson {
    #[serde(default, deserialize_with = "null_as_default")]
    id: String,
    function: FunctionJson,
}

#[derive(Deserialize)]
struct FunctionJson {
    name: String,
    #[serde(default)]
    arguments: Value,
}

impl TryFrom<CallJson> for ToolCall {
    type Error = String;

    fn try_from(json: CallJson) -> Result<Self, String> {
        let FunctionJson { name, arguments } = json.function;
        let arguments = object(arguments)
            .map_err(|found| format!("the arguments of {name:?} are {found}, expected an object or its JSON text"))?;
        Ok(Self { id: json.id, name, arguments })
    }
}

/// Arguments as models and clients write them: an object, the JSON text of one, or nothing. Else the error says what was found.
pub(super) fn object(value: Value) -> Result<Map<String, Value>, String> {
    match value {
        Value::Object(map) => Ok(map),
        Value::Null => Ok(Map::new()),
        Value::String(text) if text.trim().is_empty() => Ok(Map::new()),
        Value::String(text) => match serde_json::from_str(&text) {
            Ok(Value::Object(map)) => Ok(map),
            Ok(other) => Err(kind(&other).into()),
            Err(error) => Err(format!("a text that is not JSON ({error})")),
        },
        other => Err(kind(&other).into()),
    }
}

/// What a JSON value is, in words.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_other_programs_are_read() {
        let text = r#"{"role": "assistant", "content": null, "mood": "calm", "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}},
            {"function": {"name": "g", "arguments": {"y": [2]}}},
            {"id": null, "function": {"name": "h", "arguments": ""}}]}"#;
        let message: Message = serde_json::from_str(text).expect("a message");
        let back = serde_json::to_value(&message).expect("JSON");
        let expected = json!({"role": "assistant", "content": "", "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}},
            {"type": "function", "function": {"name": "g", "arguments": {"y": [2]}}},
            {"type": "function", "function": {"name": "h", "arguments": {}}}], "mood": "calm"});
        assert_eq!(back, expected);
        assert_eq!(
            serde_json::to_value(Message::new("user", "hi")).expect("JSON"),
            json!({"role": "user", "content": "hi"})
        );
    }

    #[test]
    fn arguments_that_are_none_are_refused() {
        for (arguments, reason) in [(json!([1]), "an array"), (json!("{"), "not JSON"), (json!("3"), "a number")] {
            let call = json!({"function": {"name": "f", "arguments": arguments}});
            let error = serde_json::from_value::<ToolCall>(call).expect_err("not arguments").to_string();
            assert!(error.contains(reason) && error.contains("\"f\""), "{error}");
        }
    }
}
