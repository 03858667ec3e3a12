//! Prompts from chat templates against jinja2, set up as transformers sets it up.

mod common;

use std::collections::HashMap;
use std::path::Path;

use blueshift::chat::tools::Tool;
use blueshift::chat::{ChatTemplate, Message, RenderOptions};
use blueshift::error::Error;
use blueshift::gguf::{Metadata, Source, Value, open};
use serde::Deserialize;

/// Written by `tools/golden_chat.py`.
#[derive(Deserialize)]
struct Golden {
    now: i64,
    conversations: HashMap<String, Vec<Message>>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    template: String,
    conversation: String,
    add_generation_prompt: bool,
    tools: Vec<Tool>,
    variables: serde_json::Map<String, serde_json::Value>,
    bos: String,
    eos: String,
    /// Missing where the template refuses the conversation.
    rendered: Option<String>,
    error: Option<String>,
}

/// The template of a case; `None` for a model that is absent.
fn template(case: &Case, folder: &Path) -> Option<ChatTemplate> {
    if case.template.ends_with(".gguf") {
        let source = Source::file(common::model(&case.template)?).expect("the file opens");
        let file = pollster::block_on(open(source)).expect("a GGUF file");
        return ChatTemplate::from_metadata(&file.header.metadata).expect("a template");
    }
    let source = std::fs::read_to_string(folder.join(&case.template)).expect("a template");
    Some(ChatTemplate::new(&source, &case.bos, &case.eos).expect("Jinja"))
}

fn check(golden: &Golden, folder: &Path) {
    let mut wrong = Vec::new();
    let mut last: Option<(&str, Option<ChatTemplate>)> = None;
    for case in &golden.cases {
        if last.as_ref().is_none_or(|(name, _)| *name != case.template) {
            last = Some((&case.template, template(case, folder)));
        }
        let Some((_, Some(template))) = &last else { continue };
        let options = RenderOptions {
            add_generation_prompt: case.add_generation_prompt,
            tools: case.tools.clone(),
            now: Some(golden.now),
            variables: case.variables.clone(),
        };
        let rendered = template.render(&golden.conversations[&case.conversation], &options);
        let same = match (&rendered, &case.rendered, &case.error) {
            (Ok(text), Some(expected), _) => text == expected,
            (Err(Error::Template { reason }), None, Some(error)) => reason.contains(error),
            _ => false,
        };
        if !same {
            let (expected, error) = (&case.rendered, &case.error);
            wrong.push(format!(
                "{} {} {}\n  got      {rendered:?}\n  expected {expected:?} {error:?}",
                case.template, case.conversation, case.add_generation_prompt
            ));
        }
    }
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), golden.cases.len(), wrong.join("\n"));
}

#[test]
fn prompts_are_those_of_jinja2() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/chat");
    let golden = serde_json::from_str(include_str!("data/chat/golden.json")).expect("golden prompts");
    check(&golden, &folder);
}

#[test]
fn a_file_without_a_template_says_so() {
    let metadata = Metadata::default();
    assert!(matches!(ChatTemplate::from_metadata(&metadata), Ok(None)));
    assert!(ChatTemplate::from_metadata(&metadata).expect("no error").is_none());
}

#[test]
fn what_is_not_jinja_is_an_error_with_its_line() {
    let mut metadata = Metadata::default();
    metadata.insert("tokenizer.chat_template", Value::String("a\n{% if %}".into()));
    let error = ChatTemplate::from_metadata(&metadata).expect_err("not Jinja");
    assert!(matches!(&error, Error::Template { reason } if reason.contains(":2")), "{error}");
}

#[test]
fn without_a_clock_there_is_no_strftime_now() {
    let template = ChatTemplate::new("{{ strftime_now is defined }}", "", "").expect("Jinja");
    let render = |now| template.render(&[], &RenderOptions { now, ..RenderOptions::default() }).expect("a prompt");
    assert_eq!([render(None), render(Some(0))], ["False", "True"]);
}
