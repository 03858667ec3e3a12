//! Grammars of required calls in llguidance: what they let pass, and that the parser reads it.

use std::sync::Arc;

use blueshift::chat::reasoning::ReasoningFormat;
use blueshift::chat::tools::grammar::{MarkToken, RequiredCalls};
use blueshift::chat::tools::{AnswerFormat, ParseOptions, Tool, ToolFormat, parse_answer};
use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use serde_json::json;

/// The end of an answer.
const END: u32 = 256;

/// A vocabulary of bytes, an end and `marks`.
struct Vocabulary {
    marks: Vec<&'static str>,
    env: TokEnv,
}

impl Vocabulary {
    fn new(marks: &[&'static str]) -> Self {
        let special = |text: &str| [&[TokTrie::SPECIAL_TOKEN_MARKER], text.as_bytes()].concat();
        let bytes = (0..=255u8).map(|byte| vec![byte]);
        let words: Vec<_> = bytes.chain([special("<end>")]).chain(marks.iter().map(|mark| special(mark))).collect();
        let info = TokRxInfo::new(words.len() as u32, END);
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(TokTrie::from(&info, &words)));
        Self { marks: marks.to_vec(), env }
    }

    fn token(&self, text: &str) -> MarkToken {
        let at = self.marks.iter().position(|mark| *mark == text);
        at.map_or(MarkToken::None, |at| MarkToken::Special(END + 1 + at as u32))
    }

    fn encode(&self, mut text: &str) -> Vec<u32> {
        let mut ids = Vec::new();
        while let Some(first) = text.bytes().next() {
            match self.marks.iter().position(|mark| text.starts_with(mark)) {
                Some(at) => {
                    ids.push(END + 1 + at as u32);
                    text = &text[self.marks[at].len()..];
                }
                None => {
                    ids.push(u32::from(first));
                    let Some(rest) = text.get(1..) else {
                        // The other bytes of a character.
                        let len = text.chars().next().map_or(1, char::len_utf8);
                        ids.extend(text[..len].bytes().skip(1).map(u32::from));
                        text = &text[len..];
                        continue;
                    };
                    text = rest;
                }
            }
        }
        ids
    }

    fn matcher(&self, lark: &str) -> Matcher {
        let factory = ParserFactory::new(&self.env, InferenceCapabilities::default(), &[]).expect("a factory");
        let matcher = Matcher::new(factory.create_parser(TopLevelGrammar::from_lark(lark.to_owned())));
        assert!(!matcher.is_error(), "{:?}\n{lark}", matcher.get_error());
        matcher
    }

    /// Whether `text` is a whole answer of the grammar.
    fn accepts(&self, lark: &str, text: &str) -> bool {
        let ids = self.encode(text);
        let mut matcher = self.matcher(lark);
        let n = matcher.try_consume_tokens(&ids).expect("a state");
        n == ids.len() && (matcher.is_stopped() || matcher.is_accepting().expect("a state"))
    }
}

fn tools() -> Vec<Tool> {
    let weather = json!({
        "type": "object",
        "properties": {"place": {"$ref": "#/$defs/place"}, "days": {"type": "integer"}},
        "required": ["place"],
        "additionalProperties": false,
        "$defs": {"place": {"type": "string"}},
    });
    let now = json!({"type": "object", "properties": {}, "additionalProperties": false});
    vec![Tool::new("weather", "", weather).expect("a tool"), Tool::new("now", "", now).expect("a tool")]
}

fn typed_tools() -> Vec<Tool> {
    let weather = json!({
        "type": "object",
        "properties": {
            "place": {"type": "string"},
            "days": {"type": "integer"},
            "units": {"enum": ["C", "F"]},
            "at": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "number"}, "y": {}}, "required": ["x"]}},
        },
        "required": ["place"],
    });
    vec![Tool::new("weather", "", weather).expect("a tool"), Tool::new("now", "", json!({})).expect("a tool")]
}

struct Case {
    format: ToolFormat,
    reasoning: Option<ReasoningFormat>,
    marks: &'static [&'static str],
    /// Answers that pass, with the number of calls.
    good: Vec<(String, usize)>,
    bad: Vec<&'static str>,
}

fn cases() -> Vec<Case> {
    let s = String::from;
    let hermes = [
        (
            s(
                "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"place\": \"Oslo }\", \"days\": 2}}\n</tool_call>",
            ),
            1,
        ),
        (
            s(
                "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
            ),
            2,
        ),
        (s("<think>\nHm <b> {\n</think>\n\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"), 1),
    ];
    let no_hermes = vec![
        "Hi",
        "<tool_call>\n{\"name\": \"rm\", \"arguments\": {}}\n</tool_call>",
        "<tool_call>\n{\"name\": \"weather\", \"arguments\": {}}\n</tool_call>",
        "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"place\": 3}}\n</tool_call>",
        "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}",
    ];
    let functions = |open: &str, close: &str, q: &str| {
        vec![
            (format!("{open}call:weather{{place:{q}Oslo, }}{{{q}}}{close}"), 1),
            (
                format!(
                    "{open}call:weather{{at:[{{x:1.5,y:[{q}a{q},null]}},{{x:-2}}],days:3,place:{q}{q},units:{q}F{q}}}{close}"
                ),
                1,
            ),
            (format!("{open}call:now{{}}{close}{open}call:now{{}}{close}"), 2),
        ]
    };
    vec![
        Case {
            format: ToolFormat::Hermes,
            reasoning: Some(ReasoningFormat::Think),
            marks: &[],
            good: hermes.to_vec(),
            bad: no_hermes.clone(),
        },
        Case {
            format: ToolFormat::Hermes,
            reasoning: Some(ReasoningFormat::Think),
            marks: &["<tool_call>", "</tool_call>", "<think>", "</think>"],
            good: hermes.to_vec(),
            bad: no_hermes,
        },
        Case {
            format: ToolFormat::Llama3,
            reasoning: None,
            marks: &["<|python_tag|>"],
            good: vec![
                (s("{\"name\": \"weather\", \"parameters\": {\"place\": \"é\"}}"), 1),
                (s("{\"name\": \"now\", \"parameters\": {}}; {\"name\": \"now\", \"parameters\": {}}"), 2),
            ],
            bad: vec!["{}", "{\"name\": \"now\", \"arguments\": {}}"],
        },
        Case {
            format: ToolFormat::Mistral,
            reasoning: Some(ReasoningFormat::MistralThink),
            marks: &["[TOOL_CALLS]", "[THINK]", "[/THINK]"],
            good: vec![
                (s("[TOOL_CALLS][{\"name\": \"weather\", \"arguments\": {\"place\": \"]\"}}]"), 1),
                (
                    s(
                        "[THINK]Hm[/THINK][TOOL_CALLS][{\"name\": \"now\", \"arguments\": {}}, {\"name\": \"now\", \"arguments\": {}}]",
                    ),
                    2,
                ),
            ],
            bad: vec!["[TOOL_CALLS][]", "[TOOL_CALLS]now[ARGS]{}"],
        },
        Case {
            format: ToolFormat::Mistral,
            reasoning: None,
            marks: &["[TOOL_CALLS]", "[ARGS]"],
            good: vec![
                (s("[TOOL_CALLS]weather[ARGS]{\"place\": \"[ARGS\"}"), 1),
                (s("[TOOL_CALLS]now[ARGS]{}[TOOL_CALLS]now[ARGS]{}"), 2),
            ],
            bad: vec!["[TOOL_CALLS]rm[ARGS]{}", "[TOOL_CALLS][]"],
        },
        Case {
            format: ToolFormat::Fenced,
            reasoning: None,
            marks: &[],
            good: vec![
                (s("```tool_code\n{\"name\": \"weather\", \"parameters\": {\"place\": \"```\"}}\n```"), 1),
                (
                    s(
                        "```tool_code\n{\"name\": \"now\", \"parameters\": {}}\n```\n```tool_code\n{\"name\": \"now\", \"parameters\": {}}\n```",
                    ),
                    2,
                ),
            ],
            bad: vec!["```json\n{}\n```"],
        },
        Case {
            format: ToolFormat::FunctionGemma,
            reasoning: None,
            marks: &[],
            good: functions("<start_function_call>", "<end_function_call>", "<escape>"),
            bad: vec!["<start_function_call>call:weather{}<end_function_call>"],
        },
        Case {
            format: ToolFormat::FunctionGemma,
            reasoning: None,
            marks: &["<start_function_call>", "<end_function_call>", "<escape>"],
            good: functions("<start_function_call>", "<end_function_call>", "<escape>"),
            bad: vec![
                "<start_function_call>call:weather{}<end_function_call>",
                "<start_function_call>call:weather{place:<escape>a<escape>,units:<escape>K<escape>}<end_function_call>",
                "<start_function_call>call:weather{place:<escape>a<escape>,days:1.5}<end_function_call>",
                "<start_function_call>call:weather{,place:<escape>a<escape>}<end_function_call>",
            ],
        },
        Case {
            format: ToolFormat::Gemma4,
            reasoning: Some(ReasoningFormat::Gemma4Thought),
            marks: &["<|tool_call>", "<tool_call|>", "<|\"|>", "<|channel>", "<channel|>"],
            good: [
                functions("<|tool_call>", "<tool_call|>", "<|\"|>"),
                vec![(s("<|channel>thought\nHm\n<channel|><|tool_call>call:now{}<tool_call|>"), 1)],
            ]
            .concat(),
            bad: vec!["<|channel>thought\nHm\n<channel|>"],
        },
        Case {
            format: ToolFormat::Harmony,
            reasoning: None,
            marks: &["<|call|>", "<|return|>"],
            good: vec![
                (
                    s(
                        "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{\"place\": \"<|end|>\"}<|call|>",
                    ),
                    1,
                ),
                (
                    s(
                        "<|channel|>analysis<|message|>Hm < {<|end|><|start|>assistant<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}<|call|>",
                    ),
                    1,
                ),
            ],
            bad: vec![
                "<|channel|>final<|message|>Hi<|return|>",
                "<|channel|>commentary to=functions.rm <|constrain|>json<|message|>{}<|call|>",
            ],
        },
    ]
}

#[test]
fn required_calls_pass_and_nothing_else() {
    for case in cases() {
        let vocabulary = Vocabulary::new(case.marks);
        let typed = matches!(case.format, ToolFormat::FunctionGemma | ToolFormat::Gemma4);
        let tools = if typed { typed_tools() } else { tools() };
        let format = AnswerFormat { tools: Some(case.format), reasoning: case.reasoning };
        let grammar = |parallel| {
            let required = RequiredCalls { format, tools: &tools, parallel, in_reasoning: false };
            required.lark(|text| vocabulary.token(text)).expect("a grammar")
        };
        let lark = grammar(true);
        for (text, n_calls) in &case.good {
            assert!(vocabulary.accepts(&lark, text), "{text}\n{lark}");
            assert_eq!(vocabulary.accepts(&grammar(false), text), *n_calls == 1, "{text}\n{}", grammar(false));
            let answer = parse_answer(text, format, ParseOptions::new(format, "", &tools));
            assert_eq!((answer.tool_calls.len(), answer.problems.len()), (*n_calls, 0), "{text}: {answer:?}");
        }
        for text in &case.bad {
            assert!(!vocabulary.accepts(&lark, text), "{text}\n{lark}");
        }
    }
}

#[test]
fn a_span_that_the_prompt_opened_is_closed_first() {
    let tools = tools();
    let format = AnswerFormat { tools: Some(ToolFormat::Hermes), reasoning: Some(ReasoningFormat::Think) };
    for marks in [&[][..], &["<think>", "</think>"]] {
        let vocabulary = Vocabulary::new(marks);
        let required = RequiredCalls { format, tools: &tools[1..], parallel: false, in_reasoning: true };
        let lark = required.lark(|text| vocabulary.token(text)).expect("a grammar");
        let call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
        assert!(vocabulary.accepts(&lark, &format!("Hm <tool_call>\n</think>\n\n{call}")), "{lark}");
        assert!(!vocabulary.accepts(&lark, call), "{lark}");
    }
}

#[test]
fn without_tools_or_a_format_there_is_no_grammar() {
    let tools = tools();
    let of = |tools, list| RequiredCalls {
        format: AnswerFormat { tools, reasoning: None },
        tools: list,
        parallel: true,
        in_reasoning: false,
    };
    assert_eq!(of(None, &tools[..]).lark(|_| MarkToken::None), None);
    assert_eq!(of(Some(ToolFormat::Hermes), &[]).lark(|_| MarkToken::None), None);
}
