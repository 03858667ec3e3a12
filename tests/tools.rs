//! Calls and reasoning in answers as models write them, cut in every way.

use blueshift::chat::reasoning::ReasoningFormat;
use blueshift::chat::tools::{Answer, AnswerFormat, AnswerParser, Event, ParseOptions, ToolFormat, parse_answer};
use blueshift::tokenizer::Decoder;
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
        let text: String = (0..random(24)).map(|_| scraps[random(scraps.len())]).collect();
        let sample = sample(Some(formats[round % formats.len()]), text, "", &[]);
        let whole = sample.events(&[&sample.text]);
        let mut pieces = Vec::new();
        let mut rest = sample.text.as_str();
        while let Some((len, _)) = rest.char_indices().nth(1 + random(9)) {
            let (piece, behind) = rest.split_at(len);
            pieces.push(piece);
            rest = behind;
        }
        pieces.push(rest);
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
