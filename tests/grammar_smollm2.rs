//! A real model's answers under JSON schemas: rows of many schemas share the steps of a batch with rows that have none.
#![cfg(feature = "grammar")]

mod common;
mod scheduling;
mod schemas;

use std::collections::BTreeMap;

use blueshift::engine::{
    BackendChoice, Engine, GenerateOptions, LoadOptions, Request, RequestId, Scheduler, SchedulerOptions, StopReason,
};
use blueshift::gguf::Source;
use blueshift::grammar::{Constraint, Grammar};
use blueshift::sample::Sampling;
use pollster::block_on;
use scheduling::{Stream, Streams, check, finish};
use schemas::{Case, cases, fault};

const SLOTS: usize = 12;
/// Most tokens of an answer: what ends by itself does so in fewer, recursion and numbers without a bound in none.
const MAX_TOKENS: usize = 64;
const TEMPERATURES: [f32; 3] = [0.0, 1.0, 2.0];

/// What a row is asked.
enum Asked<'a> {
    Under(&'a Case, f32),
    Free(Box<Request>),
}

/// Every schema at every temperature, and something without a schema beside every fourth one.
fn submit<'a>(scheduler: &mut Scheduler, cases: &'a [Case]) -> BTreeMap<RequestId, Asked<'a>> {
    let mut all = BTreeMap::new();
    for (i, case) in cases.iter().enumerate() {
        let sampling = |temperature| Sampling::new(temperature, i as u64);
        let prompt = scheduler.engine().raw_prompt(&format!("A short answer as JSON, {}:\n", case.name));
        for temperature in TEMPERATURES {
            let options = GenerateOptions {
                max_tokens: MAX_TOKENS,
                sampling: sampling(temperature),
                grammar: Some(Grammar::JsonSchema(case.schema.clone())),
                ..Default::default()
            };
            let id = scheduler.submit(Request::new(&prompt, options)).expect("a request");
            all.insert(id, Asked::Under(case, temperature));
        }
        if i % 4 == 0 {
            let options = GenerateOptions {
                max_tokens: 16,
                sampling: sampling(TEMPERATURES[i / 4 % 3]),
                ignore_eos: true,
                ..Default::default()
            };
            let request = Request { keep_logits: true, ..Request::new(&prompt, options) };
            let id = scheduler.submit(request.clone()).expect("a request");
            all.insert(id, Asked::Free(Box::new(request)));
        }
    }
    all
}

/// A schema's constraint after `ids`; none where it does not take one of them.
fn replay(engine: &Engine, case: &Case, ids: &[u32]) -> Option<Constraint> {
    let mut constraint = engine.constraint(&Grammar::JsonSchema(case.schema.clone())).expect("a schema");
    ids.iter().all(|id| constraint.accept(*id).is_ok()).then_some(constraint)
}

/// What is wrong with an answer. One that ended by itself is valid, any other is the beginning of one.
fn wrong(engine: &Engine, case: &Case, ids: &[u32], ended: Option<&str>) -> Option<String> {
    let Some(constraint) = replay(engine, case, ids) else { return Some(format!("{ids:?} is refused")) };
    let text = ended?;
    let tokenizer = engine.tokenizer();
    let shown = ids.iter().filter(|id| !tokenizer.is_eog(**id));
    let bytes: Vec<u8> = shown.flat_map(|id| tokenizer.token_bytes(*id)).copied().collect();
    if bytes != text.as_bytes() {
        return Some(format!("its tokens are not {text:?}"));
    }
    if !constraint.is_finished() { Some(format!("more could follow {text:?}")) } else { fault(&case.schema, &bytes) }
}

/// The text of a stream that ended by itself.
fn ended(stream: &Stream) -> Option<&str> {
    let end = stream.end.as_ref().expect("an end");
    matches!(end.stop_reason, StopReason::Eos | StopReason::GrammarEnd).then_some(&*stream.text)
}

/// The texts that differ from `text` in one character, which is `other` instead.
fn changed(text: &str, other: char) -> impl Iterator<Item = String> {
    text.char_indices().map(move |(at, c)| format!("{}{other}{}", &text[..at], &text[at + c.len_utf8()..]))
}

/// The canary: answers with one character changed, and beginnings with one token changed, are refused.
fn check_the_check(engine: &Engine, case: &Case, stream: &Stream) {
    // No JSON begins with this, and no constant of the cases has it.
    let (other, id) = ('#', engine.tokenizer().encode("#", false)[0]);
    let ids = [&[id], &stream.ids[1..]].concat();
    assert!(wrong(engine, case, &ids, None).is_some(), "{}: another first token", case.name);
    let Some(text) = ended(stream) else { return };
    let is_fixed = case.name.starts_with("const") || case.name.starts_with("enum");
    for text in changed(text, other).take(if is_fixed { usize::MAX } else { 1 }) {
        assert!(fault(&case.schema, text.as_bytes()).is_some(), "{}: {text}", case.name);
    }
}

#[test]
fn answers_in_a_batch_are_valid() {
    let Some(path) = common::model("SmolLM2-135M-Instruct.Q4_1.gguf") else { return };
    let load = |slots| {
        let options = LoadOptions { backend: BackendChoice::Cpu, n_ctx: Some(128), slots, ..Default::default() };
        block_on(Engine::load(Source::file(&path).expect("the file opens"), options)).expect("the model loads")
    };
    let cases = cases();
    let mut scheduler = Scheduler::new(load(SLOTS), SchedulerOptions::default()).expect("a scheduler");
    let asked = submit(&mut scheduler, &cases);
    let mut streams = Streams::new();
    finish(&mut scheduler, &mut streams);
    assert_eq!((streams.len(), scheduler.counters().most_rows), (asked.len(), SLOTS));

    let (mut alone, engine) = (load(1), scheduler.engine());
    let (mut valid, mut cut, mut faults) = ([0; 3], [0; 3], Vec::new());
    for ((id, completion), stream) in &streams {
        let (case, temperature) = match &asked[id] {
            Asked::Under(case, temperature) => (case, temperature),
            // Its neighbours' masks are nothing to it.
            Asked::Free(request) => {
                check("a row without a schema", &mut alone, request, *completion, stream);
                continue;
            }
        };
        assert_eq!(stream.error, None, "{}", case.name);
        let text = ended(stream);
        let reason = wrong(engine, case, &stream.ids, text);
        faults.extend(reason.map(|reason| format!("{}, T {temperature}: {reason}", case.name)));
        let at = TEMPERATURES.iter().position(|t| t == temperature).expect("one of them");
        if text.is_some() {
            valid[at] += 1
        } else {
            cut[at] += 1
        };
        check_the_check(engine, case, stream);
    }
    assert!(faults.is_empty(), "{} are wrong:\n{}", faults.len(), faults.join("\n"));
    for (temperature, (valid, cut)) in TEMPERATURES.iter().zip(valid.iter().zip(&cut)) {
        println!("T {temperature}: {valid} of {} answers ended, all valid; {cut} were cut", cases.len());
        assert!(valid * 5 > cases.len() * 3, "T {temperature}: {valid} of {} answers ended", cases.len());
    }
}
