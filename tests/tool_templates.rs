//! Conversations with calls as models' own templates print them.

mod common;

use blueshift::chat::reasoning::ReasoningFormat;
use blueshift::chat::tools::{AnswerFormat, ParseOptions, Problem, Tool, ToolFormat, parse_answer, spelled_out};
use blueshift::chat::{ChatTemplate, Message, RenderOptions, ToolCall};
use serde::Deserialize;
use serde_json::json;

/// Written by `tools/golden_chat.py --tools`.
#[derive(Deserialize)]
struct Golden {
    now: i64,
    tools: Vec<Tool>,
    conversations: std::collections::HashMap<String, Vec<Message>>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    template: String,
    conversation: String,
    bos: String,
    eos: String,
    prompt: Option<String>,
    answered: Option<String>,
    next: Option<String>,
}

fn golden() -> Golden {
    serde_json::from_str(include_str!("data/chat/tools.json")).expect("golden conversations")
}

/// The golden cases hold what models were trained to write: the parser reads it back.
#[test]
fn what_templates_print_is_read_back() {
    let formats = [
        ("Qwen-Qwen3", Some(ToolFormat::Hermes), Some(ReasoningFormat::Think)),
        ("Qwen-Qwen2.5", Some(ToolFormat::Hermes), None),
        ("NousResearch", Some(ToolFormat::Hermes), None),
        ("meta-llama", Some(ToolFormat::Llama3), None),
        ("mistral", Some(ToolFormat::Mistral), None),
        ("unsloth-mistral", Some(ToolFormat::Mistral), None),
        ("Mistral", Some(ToolFormat::Mistral), None),
        ("google", Some(ToolFormat::Gemma4), Some(ReasoningFormat::Gemma4Thought)),
        ("openai", Some(ToolFormat::Harmony), None),
    ];
    let golden = golden();
    let mut n_read = 0;
    for case in &golden.cases {
        let (Some(prompt), Some(answered)) = (&case.prompt, &case.answered) else { continue };
        let Some((_, tools, reasoning)) = formats.iter().find(|(name, ..)| case.template.starts_with(name)) else {
            continue;
        };
        // One template moves the system's message once there is an answer.
        let answer = answered.strip_prefix(prompt.as_str()).or(answered.rsplit("[/INST]").next()).expect("an answer");
        let answer = answer.trim_end().trim_end_matches(case.eos.as_str()).trim_end_matches("<|tool_response>");
        let format = AnswerFormat { tools: *tools, reasoning: *reasoning };
        let parsed = parse_answer(answer, format, ParseOptions::new(format, prompt, &golden.tools));
        let said = golden.conversations[&case.conversation]
            .iter()
            .find(|message| message.role == "assistant")
            .expect("an answer");
        let calls =
            |calls: &[ToolCall]| calls.iter().map(|c| (c.name.clone(), c.arguments.clone())).collect::<Vec<_>>();
        // Harmony has one call an answer.
        let n = if *tools == Some(ToolFormat::Harmony) { 1 } else { said.tool_calls.len() };
        assert_eq!(calls(&parsed.tool_calls), calls(&said.tool_calls[..n]), "{} {answer:?}", case.template);
        assert_eq!((parsed.content.as_str(), &parsed.problems), ("", &vec![]), "{} {answer:?}", case.template);
        if !parsed.reasoning.is_empty() {
            assert_eq!(Some(&parsed.reasoning), said.reasoning_content.as_ref(), "{}", case.template);
        }
        n_read += 1;
    }
    assert_eq!(n_read, 18);
}

/// Models' own templates in `templates/` beside the models, under llama.cpp's names.
#[test]
#[ignore = "needs llama.cpp's templates beside the models"]
fn templates_of_models_print_as_with_jinja2() {
    let golden = golden();
    let mut wrong = Vec::new();
    for case in &golden.cases {
        let file = format!("templates/{}.jinja", case.template);
        let path = common::model(&file).unwrap_or_else(|| panic!("{file} is missing"));
        let source = std::fs::read_to_string(path).expect("a template");
        let template = ChatTemplate::new(&source, &case.bos, &case.eos).expect("Jinja");
        // This one declares them in messages, but prints calls.
        assert_eq!(template.knows_tools(), !case.template.starts_with("deepseek"), "{file}");
        let messages = &golden.conversations[&case.conversation];
        let at = messages.iter().position(|message| message.role == "assistant").expect("an answer");
        for (end, add_generation_prompt, expected) in
            [(at, true, &case.prompt), (at + 1, false, &case.answered), (messages.len(), true, &case.next)]
        {
            let variables = [("enable_thinking".to_owned(), true.into())].into_iter().collect();
            let options =
                RenderOptions { add_generation_prompt, tools: golden.tools.clone(), now: Some(golden.now), variables };
            let rendered = template.render(&messages[..end], &options);
            if rendered.as_ref().ok() != expected.as_ref() {
                wrong.push(format!(
                    "{file} {} to {end}\n  got      {rendered:?}\n  expected {expected:?}",
                    case.conversation
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// The same folder: what is said of each format.
#[test]
#[ignore = "needs llama.cpp's templates beside the models"]
fn formats_of_models_by_their_templates() {
    let expected = [
        ("Qwen-Qwen3-0.6B", Some(ToolFormat::Hermes)),
        ("Qwen-QwQ-32B", Some(ToolFormat::Hermes)),
        ("Qwen-Qwen2.5-7B-Instruct", Some(ToolFormat::Hermes)),
        ("NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", Some(ToolFormat::Hermes)),
        ("NousResearch-Hermes-3-Llama-3.1-8B-tool_use", Some(ToolFormat::Hermes)),
        ("ibm-granite-granite-4.0", Some(ToolFormat::Hermes)),
        ("meta-llama-Llama-3.1-8B-Instruct", Some(ToolFormat::Llama3)),
        ("meta-llama-Llama-3.2-3B-Instruct", Some(ToolFormat::Llama3)),
        ("meta-llama-Llama-3.3-70B-Instruct", Some(ToolFormat::Llama3)),
        ("mistralai-Mistral-Nemo-Instruct-2407", Some(ToolFormat::Mistral)),
        ("mistralai-Ministral-3-14B-Reasoning-2512", Some(ToolFormat::Mistral)),
        ("Mistral-Small-3.2-24B-Instruct-2506", Some(ToolFormat::Mistral)),
        ("google-gemma-4-31B-it", Some(ToolFormat::Gemma4)),
        ("openai-gpt-oss-120b", Some(ToolFormat::Harmony)),
        ("google-gemma-2-2b-it", None),
        ("Qwen3-Coder", None),
        ("Qwen3.5-4B", None),
        ("GLM-4.6", None),
        ("MiniMax-M2", None),
        ("meetkai-functionary-medium-v3.1", None),
        ("fireworks-ai-llama-3-firefunction-v2", None),
        ("deepseek-ai-DeepSeek-V3.1", None),
        ("deepseek-ai-DeepSeek-R1-Distill-Llama-8B", None),
        ("microsoft-Phi-3.5-mini-instruct", None),
    ];
    for (name, format) in expected {
        let file = format!("templates/{name}.jinja");
        let path = common::model(&file).unwrap_or_else(|| panic!("{file} is missing"));
        let source = std::fs::read_to_string(path).expect("a template");
        assert_eq!(ToolFormat::detect(&source, |_| false), format, "{name}");
    }
}

#[test]
fn formats_by_tokens_where_the_template_knows_no_tools() {
    let cases = [
        ("<start_of_turn>", Some(ToolFormat::Fenced)),
        ("[TOOL_CALLS]", Some(ToolFormat::Mistral)),
        ("<tool_call>", Some(ToolFormat::Hermes)),
        ("<|python_tag|>", Some(ToolFormat::Llama3)),
        ("<start_function_call>", Some(ToolFormat::FunctionGemma)),
        ("<|call|>", Some(ToolFormat::Harmony)),
        ("<other>", None),
    ];
    for (token, format) in cases {
        assert_eq!(ToolFormat::detect("{{ messages }}", |text| text == token), format, "{token}");
        assert_eq!(ToolFormat::detect("{{ tools }}", |text| text == token), None, "{token}");
    }
}

#[test]
fn a_template_gets_arguments_and_reasoning_as_it_wants_them() {
    let call = ToolCall {
        id: "a".into(),
        name: "f".into(),
        arguments: json!({"x": [1, "é"]}).as_object().cloned().unwrap_or_default(),
    };
    let said = Message {
        tool_calls: vec![call.clone()],
        reasoning_content: Some("hm".into()),
        ..Message::new("assistant", "")
    };
    let cases = [
        ("{{ c.function.arguments | tojson }}", r#"{"x": [1, "é"]}"#),
        ("{{ '<' + c.function.arguments + '>' }}", r#"<{"x": [1, "é"]}>"#),
        ("{{ c.function.arguments }}", r#"{"x": [1, "é"]}"#),
        ("{% for k, v in c.function.arguments | items %}{{ k }}{{ v }}{% endfor %}", "x[1, 'é']"),
        (
            "{{ c.function.arguments if c.function.arguments is string else c.function.arguments | tojson }}",
            r#"{"x": [1, "é"]}"#,
        ),
    ];
    for (print, expected) in cases {
        let source =
            format!("{{% for m in messages %}}{{% for c in m.tool_calls %}}{print}{{% endfor %}}{{% endfor %}}");
        let template = ChatTemplate::new(&source, "", "").expect("Jinja");
        let rendered = template.render(std::slice::from_ref(&said), &RenderOptions::default()).expect("a prompt");
        assert_eq!(rendered, expected, "{print}");
    }
    let template = "{% for message in messages %}{{ message.reasoning_content }} {{ message['thinking'] }}{% endfor %}";
    let template = ChatTemplate::new(template, "", "").expect("Jinja");
    assert_eq!(template.render(&[said], &RenderOptions::default()).expect("a prompt"), "hm hm");
    let result = Message::tool_result(&call, "3");
    let expected = json!({"role": "tool", "content": "3", "tool_call_id": "a", "name": "f"});
    assert_eq!(serde_json::to_value(result).expect("JSON"), expected);
}

#[test]
fn two_tools_of_a_name_are_refused() {
    let tool = Tool::new("f", "", json!({})).expect("a tool");
    let options = RenderOptions { tools: vec![tool.clone(), tool], ..Default::default() };
    let error = ChatTemplate::new("", "", "").expect("Jinja").render(&[], &options).expect_err("a name is taken");
    assert!(matches!(error, blueshift::Error::BadTool { ref name, .. } if name == "f"), "{error}");
}

/// For a template without tools: everything is in the text, and what the model is told to write is what the parser reads.
#[test]
fn tools_spelled_out() {
    let golden = golden();
    let messages = &golden.conversations["two"];
    let spelled = spelled_out(messages, &golden.tools);
    let roles: Vec<&str> = spelled.iter().map(|message| message.role.as_str()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "user"]);
    assert!(
        spelled[1].content.contains("\"get_weather\"") && spelled[1].content.ends_with("Weather in Oslo and Rome?")
    );
    assert_eq!(spelled[3].content, "```tool_output\n-3\n```\n```tool_output\n12\n```");
    let format = AnswerFormat { tools: Some(ToolFormat::Fenced), reasoning: None };
    let parsed = parse_answer(&spelled[2].content, format, ParseOptions::new(format, "", &golden.tools));
    let arguments = |calls: &[ToolCall]| calls.iter().map(|call| call.arguments.clone()).collect::<Vec<_>>();
    assert_eq!(arguments(&parsed.tool_calls), arguments(&messages[2].tool_calls));
    assert_eq!((parsed.content.as_str(), parsed.problems), ("", Vec::<Problem>::new()));
    let bare = spelled_out(&[], &golden.tools);
    assert_eq!((bare.len(), bare[0].role.as_str()), (1, "user"));
    assert_eq!(spelled_out(&messages[..2], &[]), messages[..2]);
}
