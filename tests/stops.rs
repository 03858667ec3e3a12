//! How rows end: on the device and on the host, at every step of a burst, and that nothing of what was submitted beyond the end remains.

mod common;

use blueshift::engine::backend::{Backend, Burst, First, Row, RowEnd};
use blueshift::engine::policy::StopCheck;
use blueshift::engine::{BackendChoice, Engine, GenerateOptions, LoadOptions, Policy, StopReason};
use blueshift::gguf::Source;
use blueshift::micro::MicroModel;
use blueshift::quant::QuantType;
use blueshift::sample::Sampling;
use common::{answer, engines, some_ids};
use pollster::block_on;

const PROMPT: [u32; 6] = [5, 80, 21, 200, 7, 90];
static DRAWN: Sampling = Sampling::new(1.0, 11);

fn options(policy: Policy) -> GenerateOptions {
    GenerateOptions {
        max_tokens: 18,
        sampling: DRAWN.clone(),
        ignore_eos: true,
        policy: Some(policy),
        ..Default::default()
    }
}

/// The ids that come where nothing stops them, and four ids that do not come.
fn course(engine: &mut Engine) -> (Vec<u32>, Vec<u32>) {
    let ids = answer(engine, &PROMPT, options(Policy::fixed(1, 1))).unwrap().ids;
    let others = (0..engine.info().n_vocab as u32).filter(|id| !ids.contains(id)).take(4).collect();
    (ids, others)
}

#[test]
fn any_stop_id_at_every_step() {
    let bytes = MicroModel::llama3(QuantType::Q4_0).bytes();
    for (mut engine, mut fresh) in engines("micro", &bytes, 128).into_iter().zip(engines("micro", &bytes, 128)) {
        let (ids, others) = course(&mut engine);
        for burst in [1, 5, 16] {
            for stop_check in [StopCheck::PerToken, StopCheck::PerBurst] {
                for (at, id) in ids.iter().enumerate() {
                    // One of five stop ids, at changing places among them.
                    let mut stop_ids = others.clone();
                    stop_ids.insert(at % 5, *id);
                    let end = ids.iter().position(|other| other == id).unwrap() + 1;
                    let policy = Policy { stop_check, ..Policy::fixed(burst, 4) };
                    let found = answer(&mut engine, &PROMPT, GenerateOptions { stop_ids, ..options(policy) }).unwrap();
                    assert_eq!(found.ids, ids[..end], "burst {burst}, {stop_check:?}, stop at step {at}");
                    assert_eq!(found.finish.stop_reason, StopReason::StopId);
                    if at % 4 == 1 {
                        // The next turn begins with what is cached, and goes on as on an engine that ran nothing else.
                        let turn = [&PROMPT[..], &found.ids, &[3, 4]].concat();
                        let next = answer(&mut engine, &turn, options(policy)).unwrap();
                        assert!(next.finish.timings.cached_tokens >= PROMPT.len() + end - 1);
                        fresh.clear();
                        assert_eq!(next.ids, answer(&mut fresh, &turn, options(Policy::fixed(1, 1))).unwrap().ids);
                    }
                }
            }
        }
    }
}

/// Stop strings in a text of one two-byte character again and again: every token is half a character.
#[test]
fn stop_strings_split_over_tokens_bursts_and_characters() {
    for mut engine in engines("micro", &MicroModel::llama(QuantType::Q8_0).bytes(), 128) {
        let halves = engine.tokenizer().encode("é", false);
        assert_eq!(halves.len(), 2, "the micro tokenizer has bytes");
        // The two halves alone, and never the same twice.
        let sampling = Sampling {
            biases: vec![(halves[0], 900.0), (halves[1], 890.0)],
            presence_penalty: 50.0,
            penalty_window: 1,
            ..Sampling::GREEDY
        };
        let prompt = [1, 2, 3, halves[1]];
        let cases: [(&[&str], usize, &str, usize, StopReason); 6] = [
            (&["éé"], 20, "", 4, StopReason::StopString),
            (&["é"], 20, "", 2, StopReason::StopString),
            (&["ééé", "x"], 20, "", 6, StopReason::StopString),
            (&["éx"], 6, "ééé", 6, StopReason::MaxTokens),
            (&["x"], 5, "éé\u{fffd}", 5, StopReason::MaxTokens),
            (&["\u{fffd}"], 5, "éé", 5, StopReason::MaxTokens),
        ];
        for burst in [1, 2, 3, 16] {
            for (stop, max_tokens, text, n_ids, reason) in cases {
                let options = GenerateOptions {
                    max_tokens,
                    sampling: sampling.clone(),
                    stop: stop.iter().map(|s| s.to_string()).collect(),
                    policy: Some(Policy::fixed(burst, 4)),
                    ..Default::default()
                };
                let found = answer(&mut engine, &prompt, options).unwrap();
                let shown = (found.text.as_str(), found.ids.len(), found.finish.stop_reason);
                assert_eq!(shown, (text, n_ids, reason), "{stop:?}, burst {burst}, {}", engine.info().backend);
            }
        }
    }
}

fn row(first: First, position: usize, stop_ids: &[u32], left: usize) -> [Row<'_>; 1] {
    [Row { stop_ids, left, ..Row::new(0, first, position, &DRAWN) }]
}

/// A row that has ended does nothing more, neither in its burst nor in those behind it: the logits stay as the last step left them, and it
/// goes on from there.
#[test]
fn an_ended_row_does_no_work() {
    if !common::has_adapter() {
        return;
    }
    block_on(async {
        let gpu = common::open_gpu();
        let mut backend = common::gpu_backend(&gpu, MicroModel::llama(QuantType::Q4_0).bytes(), 64).await;
        let prompt = some_ids(9, 256);
        backend.feed(0, &prompt, 0).await.unwrap();
        backend.head(0, 8).await.unwrap();
        let ids = backend.burst(Burst { rows: &row(First::FromLogits, 9, &[], 100), steps: 12 }).await.unwrap()[0]
            .ids
            .clone();
        let at = (4..8).find(|at| !ids[..*at].contains(&ids[*at])).expect("an id that is new");
        let stop = [ids[at]];
        for (stops, left, steps, end) in
            [(&stop[..], 100, 12, RowEnd::StopId), (&[][..], at + 1, 12, RowEnd::MaxTokens)]
        {
            // Exactly the steps up to the end: what must be left behind.
            backend.feed(0, &prompt, 0).await.unwrap();
            backend.head(0, 8).await.unwrap();
            backend.burst(Burst { rows: &row(First::FromLogits, 9, &[], 100), steps: at + 1 }).await.unwrap();
            let logits = backend.read_logits(0).await.unwrap();

            backend.feed(0, &prompt, 0).await.unwrap();
            backend.head(0, 8).await.unwrap();
            let first = backend.submit_burst(Burst { rows: &row(First::FromLogits, 9, stops, left), steps }).unwrap();
            let behind = backend
                .submit_burst(Burst { rows: &row(First::FromState, 9 + steps - 1, stops, left), steps: 3 })
                .unwrap();
            let (drawn, nothing) = (&first.drawn().await.unwrap()[0], &behind.drawn().await.unwrap()[0]);
            assert_eq!((&drawn.ids[..], drawn.end), (&ids[..=at], Some(end)));
            assert_eq!((nothing.ids.len(), nothing.end), (0, None));
            assert_eq!(backend.read_logits(0).await.unwrap(), logits, "{end:?}");
            // Feeding the last token goes on as if nothing had been submitted beyond it.
            let next =
                backend.burst(Burst { rows: &row(First::Token(ids[at]), 9 + at, &[], 100), steps: 3 }).await.unwrap();
            assert_eq!(next[0].ids, ids[at + 1..at + 4], "{end:?}");
        }
        // The context ends a row, too: 64 positions, the token drawn after the last one is not fed.
        backend.feed(0, &some_ids(60, 256), 0).await.unwrap();
        backend.head(0, 59).await.unwrap();
        let drawn = backend.burst(Burst { rows: &row(First::FromLogits, 60, &[], 100), steps: 5 }).await.unwrap();
        assert_eq!((drawn[0].ids.len(), drawn[0].end), (5, Some(RowEnd::ContextFull)));
    });
}

/// Ends by number of tokens and by context, with more in flight than is wanted.
#[test]
fn limits() {
    for mut engine in engines("micro", &MicroModel::llama3(QuantType::Q4_0).bytes(), 24) {
        let (ids, _) = course(&mut engine);
        for burst in [1, 4, 16] {
            for max_tokens in [1, 2, 7, 16, 18] {
                let options = GenerateOptions { max_tokens, ..options(Policy::fixed(burst, 4)) };
                let found = answer(&mut engine, &PROMPT, options).unwrap();
                assert_eq!((&found.ids[..], found.finish.stop_reason), (&ids[..max_tokens], StopReason::MaxTokens));
            }
            // 6 + 18 positions, and one more drawn after the last.
            let options = GenerateOptions { max_tokens: 1000, ..options(Policy::fixed(burst, 4)) };
            let found = answer(&mut engine, &PROMPT, options).unwrap();
            assert_eq!((found.ids.len(), found.finish.stop_reason), (19, StopReason::ContextFull));
            assert_eq!(found.ids[..18], ids);
        }
    }
}

#[test]
#[cfg_attr(on_cuda, ignore = "slow on the processor")]
fn smollm2_stops() {
    let Some(path) = common::model("SmolLM2-135M-Instruct.Q4_1.gguf").filter(|_| common::has_adapter()) else { return };
    let source = Source::file(&path).expect("the file opens");
    let backend = BackendChoice::Gpu;
    let load = LoadOptions { backend, gpu: common::gpu_for(backend), n_ctx: Some(128), ..Default::default() };
    let mut engine = block_on(Engine::load(source, load)).unwrap();
    let prompt = engine.raw_prompt("The capital of France is");
    let options = |stop: &str, stop_ids: &[u32]| GenerateOptions {
        max_tokens: 14,
        stop: [stop].into_iter().filter(|s| !s.is_empty()).map(String::from).collect(),
        stop_ids: stop_ids.to_vec(),
        policy: Some(Policy::fixed(16, 4)),
        ..Default::default()
    };
    let whole = answer(&mut engine, &prompt, options("", &[])).unwrap();
    // A text that begins in the middle of a token and ends in the middle of another one.
    let at = whole.text.char_indices().nth(whole.text.chars().count() / 2).expect("some text").0;
    let stop: String = whole.text[at..].chars().take(7).collect();
    let found = answer(&mut engine, &prompt, options(&stop, &[])).unwrap();
    assert_eq!(found.finish.stop_reason, StopReason::StopString);
    assert_eq!(found.text, whole.text[..whole.text.find(&stop).unwrap()]);
    for at in [0, 3, 9] {
        let id = whole.ids[at];
        let end = whole.ids.iter().position(|other| *other == id).unwrap() + 1;
        let found = answer(&mut engine, &prompt, options("", &[1000, id, 1001, 1002, 1003])).unwrap();
        assert_eq!((&found.ids[..], found.finish.stop_reason), (&whole.ids[..end], StopReason::StopId));
        // What follows is what would have followed.
        let turn = [&prompt[..], &found.ids].concat();
        let rest = answer(&mut engine, &turn, GenerateOptions { max_tokens: 14 - end, ..options("", &[]) }).unwrap();
        assert_eq!(rest.ids, whole.ids[end..]);
    }
}
