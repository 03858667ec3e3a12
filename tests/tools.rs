//! Calls and reasoning: answers as models write them, cut in every way; conversations with calls as models' own templates print them.

mod common;

use blueshift::chat::reasoning::ReasoningFormat;
use blueshift::chat::tools::{
    Answer, AnswerFormat, AnswerParser, Event, ParseOptions, Problem, Tool, ToolFormat, parse_answer, spelled_out,
};
use blueshift::chat::{ChatTemplate, Message, RenderOptions, ToolCall};
use blueshift::tokenizer::Decoder;
use serde::Deserialize;
use serde_json::{Value, json};

/// An answer of a format, and what is in it.
struct Sample {
    format: AnswerFormat,
    in_reasoning: bool,
    text: String,
    reasoning: &'static str,
    content: String,
    calls: Vec<(&'static str, Value)>,
    problems: Vec<&'static str>,
}

fn sample(
    tools: Option<ToolFormat>,
    text: impl Into<String>,
    content: impl Into<String>,
    calls: &[(&'static str, Value)],
) -> Sample {
    let reasoning = match tools {
        Some(ToolFormat::Harmony) => None,
        Some(ToolFormat::Gemma4) => Some(ReasoningFormat::Gemma4Thought),
        Some(ToolFormat::Mistral) => Some(ReasoningFormat::MistralThink),
        _ => Some(ReasoningFormat::Think),
    };
    let (text, content, calls) = (text.into(), content.into(), calls.to_vec());
    let format = AnswerFormat { tools, reasoning };
    Sample { format, in_reasoning: false, text, reasoning: "", content, calls, problems: Vec::new() }
}

impl Sample {
    fn thinking(mut self, reasoning: &'static str) -> Self {
        self.reasoning = reasoning;
        self
    }

    fn problems(mut self, problems: &[&'static str]) -> Self {
        self.problems = problems.to_vec();
        self
    }

    fn options(&self) -> ParseOptions {
        let names = Some(["f", "g", "get_weather"].map(String::from).to_vec());
        ParseOptions { names, in_reasoning: self.in_reasoning, calls_before: 0 }
    }

    /// The parts of the text pushed in pieces, neighbouring texts joined.
    fn events(&self, pieces: &[&str]) -> Vec<Event> {
        let mut parser = AnswerParser::new(self.format, self.options());
        let mut events: Vec<Event> = Vec::new();
        let pushed: Vec<Event> = pieces.iter().flat_map(|piece| parser.push(piece)).collect();
        for event in pushed.into_iter().chain(parser.finish()) {
            match (events.last_mut(), event) {
                (Some(Event::Content(text)), Event::Content(more))
                | (Some(Event::Reasoning(text)), Event::Reasoning(more)) => {
                    *text += &more;
                }
                (_, event) => events.push(event),
            }
        }
        events
    }
}

/// `{"name": …, "arguments": …}`.
fn hermes(name: &str, arguments: &Value) -> String {
    format!("<tool_call>\n{{\"name\": \"{name}\", \"arguments\": {arguments}}}\n</tool_call>")
}

fn hermes_samples() -> Vec<Sample> {
    let of = |text: String, content: &str, calls: &[(&'static str, Value)]| {
        sample(Some(ToolFormat::Hermes), text, content, calls)
    };
    let tricky = json!({"text": "a </tool_call> {\"}[ <tool_call> \\ é 😀\n", "deep": {"a": [{"b": {}}, "}"]}});
    let unknown = hermes("rm", &json!({}));
    vec![
        of("Hello, 2 < 3.\n".into(), "Hello, 2 < 3.\n", &[]),
        of("".into(), "", &[]),
        of(" \n".into(), " \n", &[]),
        of(hermes("f", &tricky), "", &[("f", tricky.clone())]),
        of(
            format!(
                "<think>\nHm, <tool_call> or </think\n</think>\n\nI look.\n\n{}\n{}\n",
                hermes("f", &json!({})),
                hermes("g", &tricky)
            ),
            "I look.",
            &[("f", json!({})), ("g", tricky.clone())],
        )
        .thinking("Hm, <tool_call> or </think"),
        of(format!("{} And more.", hermes("f", &json!({"x": 1}))), "And more.", &[("f", json!({"x": 1}))]),
        of(format!("A\n{}\nB", hermes("f", &json!({}))), "A\nB", &[("f", json!({}))]),
        // No closing tag, arguments as text, none at all, the whole on one line.
        of("<tool_call>{\"name\":\"f\",\"arguments\":\"{\\\"x\\\": 1}\"}".into(), "", &[("f", json!({"x": 1}))]),
        of("<tool_call> {\"name\": \"f\"} </tool_call>".into(), "", &[("f", json!({}))]),
        // Markers that are none, an unfinished thought.
        of("a <tool_cal> b <tool_".into(), "a <tool_cal> b <tool_", &[]),
        of("x <think> y".into(), "x <think> y", &[]),
        of("<think>so".into(), "", &[]).thinking("so"),
        // What is no call stays as text, and what follows is read.
        of(format!("{unknown}\n{}", hermes("f", &json!({}))), &unknown, &[("f", json!({}))])
            .problems(&["\"rm\", which was not offered"]),
        of(
            format!("<tool_call>f(x=1)</tool_call>\n{}", hermes("f", &json!({}))),
            "<tool_call>f(x=1)</tool_call>",
            &[("f", json!({}))],
        )
        .problems(&["'f' at byte 0 of its JSON"]),
        of(
            format!("<tool_call>{{\"name\": \"f\", \"arguments\": {{\"x\": 1}}</tool_call>{}", hermes("g", &json!({}))),
            "<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1}</tool_call>",
            &[("g", json!({}))],
        )
        .problems(&["'<' at byte 35 of its JSON"]),
        of("<tool_call>{\"name\": \"f\", \"arg".into(), "<tool_call>{\"name\": \"f\", \"arg", &[])
            .problems(&["ends inside a call"]),
        of(
            "<tool_call>{\"name\": \"f\", \"arguments\": [1]}".into(),
            "<tool_call>{\"name\": \"f\", \"arguments\": [1]}",
            &[],
        )
        .problems(&["of a call of \"f\" are an array"]),
        of("<tool_call>{\"x\": True}</tool_call>".into(), "<tool_call>{\"x\": True}</tool_call>", &[])
            .problems(&["malformed"]),
        of("<tool_call>{}</tool_call>".into(), "<tool_call>{}</tool_call>", &[]).problems(&["names no tool"]),
        Sample {
            in_reasoning: true,
            ..of(format!("\nOf {{}}\n</think>\n\n{}", hermes("f", &json!({}))), "", &[("f", json!({}))])
                .thinking("Of {}")
        },
    ]
}

fn llama_samples() -> Vec<Sample> {
    let of = |text: &str, content: &str, calls: &[(&'static str, Value)]| {
        sample(Some(ToolFormat::Llama3), text, content, calls)
    };
    let x = json!({"x": "a}\" \n{ <|python_tag|> é"});
    vec![
        of(&format!("{{\"name\": \"f\", \"parameters\": {x}}}"), "", &[("f", x.clone())]),
        of(
            &format!("<|python_tag|>{{\"type\": \"function\", \"name\": \"f\", \"parameters\": {x}}}<|python"),
            "<|python",
            &[("f", x.clone())],
        ),
        of(
            &format!("\n{{\"name\": \"f\", \"parameters\": {x}}}; {{\"name\": \"g\", \"parameters\": {{}}}}\n"),
            "",
            &[("f", x.clone()), ("g", json!({}))],
        ),
        of(&format!("I call:\n{{\"name\": \"f\", \"parameters\": {x}}}"), "I call:", &[("f", x.clone())]),
        of("{\"name\": \"Ada\", \"age\": 3} is JSON.", "{\"name\": \"Ada\", \"age\": 3} is JSON.", &[]),
        of("{see} {\"name\": \"f\", \"parameters\": {}}", "{see} {\"name\": \"f\", \"parameters\": {}}", &[]),
        of("{\n  \"a\": {\n{\"b\": 1}", "{\n  \"a\": {\n{\"b\": 1}", &[]),
        of("{\"name\": \"h\", \"parameters\": {}}", "{\"name\": \"h\", \"parameters\": {}}", &[])
            .problems(&["\"h\", which was not offered"]),
        of("<|python_tag|>print(1)", "<|python_tag|>print(1)", &[]).problems(&["'p' at byte 0"]),
        of("a <|python_tag|> {\"name\":\"g\",\"parameters\":{}}", "a", &[("g", json!({}))]),
    ]
}

fn mistral_samples() -> Vec<Sample> {
    let of = |text: &str, content: &str, calls: &[(&'static str, Value)]| {
        sample(Some(ToolFormat::Mistral), text, content, calls)
    };
    let x = json!({"x": "][ARGS]}\" é"});
    vec![
        of(
            &format!("[TOOL_CALLS][{{\"name\": \"f\", \"arguments\": {x}, \"id\": \"abcdefghi\"}}]"),
            "",
            &[("f", x.clone())],
        ),
        of(
            &format!(
                "[TOOL_CALLS] [{{\"name\": \"f\", \"arguments\": {x}}}, {{\"name\": \"g\", \"arguments\": {{}}}}]"
            ),
            "",
            &[("f", x.clone()), ("g", json!({}))],
        ),
        of(
            &format!("Let me.[TOOL_CALLS]f[ARGS]{x}[TOOL_CALLS]get_weather{{}}"),
            "Let me.",
            &[("f", x.clone()), ("get_weather", json!({}))],
        ),
        of(&format!("[THINK]Hm [/THINK]ok[TOOL_CALLS]g[CALL_ID]abcdefghi[ARGS]{x}"), "ok", &[("g", x.clone())])
            .thinking("Hm"),
        of("[TOOL_CALL] [1]", "[TOOL_CALL] [1]", &[]),
        of("[TOOL_CALLS]f[ARGS]", "[TOOL_CALLS]f[ARGS]", &[]).problems(&["ends inside"]),
        of("[TOOL_CALLS](f)", "[TOOL_CALLS](f)", &[]).problems(&["'(' behind [TOOL_CALLS]"]),
        of("[TOOL_CALLS]I call {}", "[TOOL_CALLS]I call {}", &[]).problems(&["' ' in its name"]),
        of("[TOOL_CALLS][]", "[TOOL_CALLS][]", &[]).problems(&["empty list"]),
        of("[TOOL_CALLS]h[ARGS]{}", "[TOOL_CALLS]h[ARGS]{}", &[]).problems(&["\"h\""]),
        of(&format!("[TOOL_CALLS]f{}", "a".repeat(300)), format!("[TOOL_CALLS]f{}", "a".repeat(300)).as_str(), &[])
            .problems(&["no arguments behind its name"]),
        of(
            "[TOOL_CALLS][{\"name\":\"f\"},{\"name\":\"h\",\"arguments\":{\"x\":1}}]",
            "{\"name\":\"h\",\"arguments\":{\"x\":1}}",
            &[("f", json!({}))],
        )
        .problems(&["\"h\""]),
    ]
}

fn fenced_samples() -> Vec<Sample> {
    let of = |text: &str, content: &str, calls: &[(&'static str, Value)]| {
        sample(Some(ToolFormat::Fenced), text, content, calls)
    };
    let x = json!({"x": "``` }\" é"});
    vec![
        of(&format!("```tool_code\n{{\"name\": \"f\", \"parameters\": {x}}}\n```"), "", &[("f", x.clone())]),
        of(
            &format!("Sure:\n```json\n[{{\"name\": \"f\", \"arguments\": {x}}}]\n```\nDone."),
            "Sure:\nDone.",
            &[("f", x.clone())],
        ),
        of(
            "```tool_code\nprint(get_weather(city=\"Oslo )\", days=2))\ng()\n```\n",
            "",
            &[("get_weather", json!({"city": "Oslo )", "days": 2})), ("g", json!({}))],
        ),
        of("[f(x='a]'), g(y=[1, None])]", "", &[("f", json!({"x": "a]"})), ("g", json!({"y": [1, null]}))]),
        of(
            "{\"name\": \"f\", \"parameters\": {}}\n{\"name\": \"g\", \"parameters\": {}}",
            "",
            &[("f", json!({})), ("g", json!({}))],
        ),
        of(
            "```tool_call\n{\"name\":\"f\"}\n{\"name\":\"g\"}\n```\n```\n{\"name\":\"g\",\"parameters\":{}}",
            "",
            &[("f", json!({})), ("g", json!({})), ("g", json!({}))],
        ),
        of("```python\n[f(x=1)] + {}\n```\nand `code` [1]", "```python\n[f(x=1)] + {}\n```\nand `code` [1]", &[]),
        of("```json\n{\"a\": [1]}\n```\n", "```json\n{\"a\": [1]}\n```\n", &[]),
        of("```tool_code\nimport os\n```", "```tool_code\nimport os\n```", &[]).problems(&["expected '('"]),
        of("```tool_code\nf(x=", "```tool_code\nf(x=", &[]).problems(&["ends inside"]),
        of("```tool_code\n```", "```tool_code\n```", &[]).problems(&["malformed"]),
        of("[link](url) [1]\n[", "[link](url) [1]\n[", &[]),
        of("```", "```", &[]),
    ]
}

fn gemma_samples() -> Vec<Sample> {
    let mut samples = Vec::new();
    let marks = [
        (ToolFormat::FunctionGemma, "<start_function_call>", "<end_function_call>", "<escape>"),
        (ToolFormat::Gemma4, "<|tool_call>", "<tool_call|>", "<|\"|>"),
    ];
    for (format, open, close, q) in marks {
        let of =
            |text: String, content: String, calls: &[(&'static str, Value)]| sample(Some(format), text, content, calls);
        let one = format!("{open}call:get_weather{{place:{q}Oslo, {{N}}: {close} \"é\"{q},days:2,on:true}}{close}");
        let oslo = json!({"place": format!("Oslo, {{N}}: {close} \"é\""), "days": 2, "on": true});
        let nested = format!("{open}call:f{{a:[1,{{b:{q}{q}}},[]], {q}c d{q} : null, e:bare }}{close}");
        let f = json!({"a": [1, {"b": ""}, []], "c d": null, "e": "bare"});
        samples.extend([
            of(one.clone(), String::new(), &[("get_weather", oslo.clone())]),
            of(
                format!("Well.\n{one}\n{nested}{open}call:g{{}}"),
                "Well.".into(),
                &[("get_weather", oslo.clone()), ("f", f), ("g", json!({}))],
            ),
            of(format!("{open}call:h{{}}{close}."), format!("{open}call:h{{}}{close}."), &[]).problems(&["\"h\""]),
            of(format!("{open}f{{}}{close}"), format!("{open}f{{}}{close}"), &[]).problems(&["no \"call:\""]),
            of(format!("{open}call:f{{a:1"), format!("{open}call:f{{a:1"), &[]).problems(&["ends inside"]),
            of(format!("{open}call:f{{a 1}}{close}"), format!("{open}call:f{{a 1}}{close}"), &[])
                .problems(&["malformed"]),
            of(format!("a {}", &open[..9]), format!("a {}", &open[..9]), &[]),
        ]);
    }
    let thought = "<|channel>thought\nHm.\n<channel|>Yes.";
    samples.push(sample(Some(ToolFormat::Gemma4), thought, "Yes.", &[]).thinking("Hm."));
    samples
}

fn harmony_samples() -> Vec<Sample> {
    let of = |text: &str, content: &str, calls: &[(&'static str, Value)]| {
        sample(Some(ToolFormat::Harmony), text, content, calls)
    };
    let x = json!({"x": "<|call|> }\" é"});
    vec![
        of("<|channel|>final<|message|>Hi.\n<|return|>", "Hi.", &[]),
        of("<|channel|>analysis<|message|>Hm <b>.<|end|><|start|>assistant<|channel|>final<|message|>Yes <|x|>.", "Yes <|x|>.", &[])
            .thinking("Hm <b>."),
        of(
            &format!(
                "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|>\
                 <|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{x}<|call|>"
            ),
            "I look.",
            &[("get_weather", x.clone())],
        )
        .thinking("Hm."),
        of(&format!(" to=functions.f<|channel|>commentary json<|message|>{x}"), "", &[("f", x.clone())]),
        of(
            "<|start|>assistant<|channel|>commentary to=functions.f<|message|> {} <|call|><|start|>assistant to=g<|channel|>commentary<|message|>{}<|call|>",
            "",
            &[("f", json!({})), ("g", json!({}))],
        ),
        of("<|channel|>analysis<|message|>A<|end|><|start|>assistant<|channel|>analysis<|message|>B<|channel|>final<|message|>C", "C", &[])
            .thinking("A\nB"),
        of("No marks at all <|", "No marks at all <|", &[]),
        of("<|channel|>final", "<|channel|>final", &[]),
        of("<|channel|>commentary to=functions.h<|message|>{}<|call|>", "<|channel|>commentary to=functions.h<|message|>{}", &[])
            .problems(&["\"h\""]),
        of(
            "<|channel|>analysis to=python code<|message|>print(1)<|call|><|start|>assistant<|channel|>final<|message|>x",
            "<|channel|>analysis to=python code<|message|>print(1)\nx",
            &[],
        )
        .problems(&["'p' at byte 0"]),
        of(&format!("<|channel|>{}", "a".repeat(600)), format!("<|channel|>{}", "a".repeat(600)).as_str(), &[]),
    ]
}

fn samples() -> Vec<Sample> {
    let plain = sample(None, "<think>a</think><tool_call>{}", "<tool_call>{}", &[]).thinking("a");
    [
        vec![plain],
        hermes_samples(),
        llama_samples(),
        mistral_samples(),
        fenced_samples(),
        gemma_samples(),
        harmony_samples(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[test]
fn answers_are_taken_apart() {
    for sample in samples() {
        let answer = parse_answer(&sample.text, sample.format, sample.options());
        let shown = format!("{:?} {:?}\n{answer:#?}", sample.format.tools, sample.text);
        assert_eq!((answer.reasoning.as_str(), &answer.content), (sample.reasoning, &sample.content), "{shown}");
        let calls: Vec<_> =
            answer.tool_calls.iter().map(|c| (c.name.as_str(), Value::Object(c.arguments.clone()))).collect();
        assert_eq!(calls, sample.calls, "{shown}");
        assert_eq!(answer.problems.len(), sample.problems.len(), "{shown}");
        for (problem, expected) in answer.problems.iter().zip(&sample.problems) {
            assert!(problem.to_string().contains(expected), "{problem}\n{shown}");
        }
    }
}

#[test]
fn the_parts_are_the_same_however_the_text_is_cut() {
    let mut state = 1u64;
    let mut random = |n: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    for sample in samples() {
        let text = sample.text.as_str();
        let whole = sample.events(&[text]);
        let ends: Vec<usize> = (0..=text.len()).filter(|at| text.is_char_boundary(*at)).collect();
        for at in &ends {
            assert_eq!(sample.events(&[&text[..*at], &text[*at..]]), whole, "{:?} cut at {at}", text);
        }
        let every: Vec<&str> = ends.windows(2).map(|w| &text[w[0]..w[1]]).collect();
        assert_eq!(sample.events(&every), whole, "{text:?} in characters");
        for _ in 0..100 {
            let mut cuts: Vec<usize> =
                (0..1 + random(8)).map(|_| ends[random(ends.len())]).chain([0, text.len()]).collect();
            cuts.sort_unstable();
            let pieces: Vec<&str> = cuts.windows(2).map(|w| &text[w[0]..w[1]]).collect();
            assert_eq!(sample.events(&pieces), whole, "{pieces:?}");
        }
    }
}

#[test]
fn bytes_in_any_pieces_give_the_same_parts() {
    for sample in samples() {
        let bytes = sample.text.as_bytes();
        let whole = sample.events(&[&sample.text]);
        for at in 0..=bytes.len() {
            let mut decoder = Decoder::new();
            let (a, b) = (decoder.push_bytes(&bytes[..at]), decoder.push_bytes(&bytes[at..]));
            assert_eq!(sample.events(&[&a, &b, &decoder.finish()]), whole, "{:?} cut at byte {at}", sample.text);
        }
    }
}

/// Texts of marks and scraps of JSON in random order: nothing panics, nothing but layout is lost, and cuts do not matter.
#[test]
fn random_answers() {
    let scraps = [
        "<tool_call>",
        "</tool_call>",
        "{",
        "}",
        "[",
        "]",
        "\"",
        "\\",
        ":",
        ",",
        "\n",
        " ",
        "é",
        "{\"name\": \"f\", \"arguments\": {}}",
        "{\"name\": \"h\", \"parameters\": {\"a\": 1}}",
        "<|python_tag|>",
        "[TOOL_CALLS]",
        "f[ARGS]",
        "[CALL_ID]",
        "```tool_code\n",
        "```",
        "```json\n",
        "[f(x=1)]",
        "<start_function_call>",
        "call:f{",
        "<escape>",
        "<end_function_call>",
        "<|channel|>",
        "analysis",
        "final",
        " to=functions.f",
        "<|message|>",
        "<|end|>",
        "<|call|>",
        "<|start|>",
        "assistant",
        "<think>",
        "</think>",
        "x",
        "<",
        "<|",
    ];
    let formats = [
        ToolFormat::Hermes,
        ToolFormat::Llama3,
        ToolFormat::Mistral,
        ToolFormat::Fenced,
        ToolFormat::FunctionGemma,
        ToolFormat::Harmony,
    ];
    let mut state = 7u64;
    let mut random = |n: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    let letters = |text: &str| text.matches('x').count();
    for round in 0..6000 {
        let pieces: Vec<&str> = (0..random(24)).map(|_| scraps[random(scraps.len())]).collect();
        let text = pieces.concat();
        let sample = sample(Some(formats[round % formats.len()]), text, "", &[]);
        let whole = sample.events(&[&sample.text]);
        assert_eq!(sample.events(&pieces), whole, "{pieces:?}");
        let mut answer = Answer::default();
        whole.into_iter().for_each(|event| answer.add(event));
        let calls: String = answer.tool_calls.iter().map(|call| json!(call).to_string()).collect();
        let kept = letters(&answer.content) + letters(&answer.reasoning) + letters(&calls);
        // A header of Harmony is layout, whatever it says.
        if !sample.text.contains("<|message|>") && !sample.text.contains("[CALL_ID]") {
            assert_eq!(kept, letters(&sample.text), "{pieces:?}: {answer:?}");
        }
    }
}

#[test]
fn text_is_told_as_soon_as_it_is_certain() {
    let format = AnswerFormat { tools: Some(ToolFormat::Hermes), reasoning: Some(ReasoningFormat::Think) };
    let mut parser = AnswerParser::new(format, ParseOptions::default());
    let content = |text: &str| vec![Event::Content(text.into())];
    assert_eq!(parser.push("<thi"), vec![]);
    assert_eq!(parser.push("s> a <to"), content("<this> a"));
    assert_eq!(parser.push("ol_kit> b"), content(" <tool_kit> b"));
    assert_eq!(parser.push("\n<tool_call>{\"name\": \"f\""), vec![]);
    let start = Event::ToolCallStart { index: 0, id: "call00000".into(), name: "f".into() };
    let arguments = Event::ToolCallArguments { index: 0, arguments: "{}".into() };
    assert_eq!(parser.push("}"), vec![start, arguments, Event::ToolCallEnd { index: 0 }]);
    assert_eq!(parser.push("</tool_call>"), vec![]);
    assert_eq!(parser.finish(), vec![]);
}

#[test]
fn calls_have_ids_of_their_own() {
    let format = AnswerFormat { tools: Some(ToolFormat::Mistral), reasoning: None };
    let options = ParseOptions { calls_before: 3, ..Default::default() };
    let text = "[TOOL_CALLS]f[ARGS]{}[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{}[TOOL_CALLS]anything[ARGS]{}";
    let ids: Vec<String> = parse_answer(text, format, options).tool_calls.into_iter().map(|call| call.id).collect();
    assert_eq!(ids, ["call00003", "abcdefghi", "call00005"]);
}

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
