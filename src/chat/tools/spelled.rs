//! Tools for models whose template knows none: everything is put into the text of the messages.

use crate::chat::json::dumps;
use crate::chat::message::Message;
use serde_json::json;

use super::tool::Tool;

/// A conversation in which `tools` are declared in the first message of the user, calls stand in the assistant's text and results are
/// messages of the user. The model is told to answer in the format [`Fenced`](super::ToolFormat::Fenced), as Google's documentation
/// of Gemma 3 advises.
pub fn spelled_out(messages: &[Message], tools: &[Tool]) -> Vec<Message> {
    let mut out: Vec<Message> = Vec::with_capacity(messages.len() + 1);
    let mut after_result = false;
    for message in messages {
        let result = message.role == "tool";
        let text = if result { fenced("tool_output", &message.content) } else { with_calls(message) };
        match out.last_mut() {
            Some(last) if result && after_result => last.content = format!("{}\n{text}", last.content),
            _ => {
                let role = if result { "user" } else { &message.role };
                let kept = Message { tool_calls: Vec::new(), tool_call_id: None, ..message.clone() };
                out.push(Message { role: role.into(), content: text, ..kept });
            }
        }
        after_result = result;
    }
    if tools.is_empty() {
        return out;
    }
    let declared = declaration(tools);
    match out.iter_mut().find(|message| message.role == "user") {
        Some(first) => first.content = format!("{declared}\n\n{}", first.content),
        None => out.push(Message::new("user", declared)),
    }
    out
}

fn declaration(tools: &[Tool]) -> String {
    let list: Vec<String> = tools.iter().map(|tool| dumps(&tool.to_json()["function"])).collect();
    let form = fenced("tool_code", r#"{"name": <name of the function>, "parameters": {<argument>: <value>, ...}}"#);
    format!(
        "You can call these functions:\n[{}]\n\nTo call one, answer with nothing but a block of this form, one block a call:\n{form}\n\
         Each result comes in a block tool_output. Where no function helps, answer in plain text.",
        list.join(",\n")
    )
}

fn with_calls(message: &Message) -> String {
    let calls = message
        .tool_calls
        .iter()
        .map(|call| fenced("tool_code", &dumps(&json!({"name": call.name, "parameters": call.arguments}))));
    let content = (!message.content.is_empty()).then(|| message.content.clone());
    content.into_iter().chain(calls).collect::<Vec<_>>().join("\n")
}

fn fenced(language: &str, text: &str) -> String {
    format!("```{language}\n{text}\n```")
}
