//! What templates disagree about: how they want the arguments of calls, and under which name they read reasoning.

use serde_json::{Value, json};

use super::json::dumps;
use super::message::Message;

/// What a template wants where templates differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dialect {
    /// Arguments of calls as JSON text, not as an object.
    pub(super) text_arguments: bool,
    /// Reasoning under `thinking`, too.
    pub(super) thinking: bool,
}

impl Dialect {
    /// Finds out by rendering a call both ways: a template that wants text fails on an object, or prints it as Python does.
    pub(super) fn of(source: &str, render: impl Fn(&Value) -> Option<String>) -> Self {
        let conversation = |arguments: Value| {
            let call =
                json!({"id": "abcdefghi", "type": "function", "function": {"name": "f", "arguments": arguments}});
            json!([{"role": "user", "content": "q"}, {"role": "assistant", "content": "", "tool_calls": [call]}])
        };
        let as_object = render(&conversation(json!({"probe": "x"})));
        let unfit = as_object.is_none_or(|text| text.contains("{'probe'"));
        let text_arguments = unfit && render(&conversation(json!(r#"{"probe": "x"}"#))).is_some();
        let thinking =
            ["message.thinking", "message['thinking']", "message[\"thinking\"]"].iter().any(|s| source.contains(s));
        Self { text_arguments, thinking }
    }

    /// A message as the template wants it.
    pub(super) fn message(self, message: &Message) -> Value {
        let mut json = json!(message);
        if self.text_arguments {
            for call in json["tool_calls"].as_array_mut().into_iter().flatten() {
                let arguments = &mut call["function"]["arguments"];
                *arguments = dumps(arguments).into();
            }
        }
        // Templates that read `thinking` refuse it beside both content and calls.
        let refused = !message.content.is_empty() && !message.tool_calls.is_empty();
        if let Some(reasoning) = message.reasoning_content.as_ref().filter(|_| self.thinking && !refused)
            && json.get("thinking").is_none()
        {
            json["thinking"] = reasoning.as_str().into();
        }
        json
    }
}
