//! How answers end, and that an answer leaves nothing behind for the next one: on the CPU and, with bursts in flight, on the GPU.

mod common;

use blueshift::Error;
use blueshift::engine::{Engine, GenerateOptions, Policy, StopReason};
use blueshift::micro::MicroModel;
use blueshift::quant::QuantType;
use blueshift::sample::Sampling;
use common::Answer;
use pollster::block_on;

const PROMPT: [u32; 5] = [5, 80, 21, 200, 7];

/// The same micro model on every backend there is.
fn engines(n_ctx: usize) -> Vec<Engine> {
    common::engines("micro", &MicroModel::llama3(QuantType::Q4_0).bytes(), n_ctx)
}

fn answer(engine: &mut Engine, prompt: &[u32], options: GenerateOptions) -> Answer {
    common::answer(engine, prompt, options).unwrap()
}

fn options(max_tokens: usize, burst: usize) -> GenerateOptions {
    GenerateOptions {
        max_tokens,
        sampling: Sampling::new(1.0, 11),
        ignore_eos: true,
        policy: Some(Policy::fixed(burst, 4)),
        ..Default::default()
    }
}

#[test]
fn token_and_context_limits() {
    for mut engine in engines(40) {
        for burst in [1, 3, 16] {
            for n in [1, 2, 17] {
                let a = answer(&mut engine, &PROMPT, options(n, burst));
                assert_eq!((a.ids.len(), a.finish.stop_reason), (n, StopReason::MaxTokens), "burst {burst}");
            }
            // 5 + 35 tokens fill the context; one more is drawn from its last position.
            let a = answer(&mut engine, &PROMPT, options(100, burst));
            assert_eq!((a.ids.len(), a.finish.stop_reason), (36, StopReason::ContextFull), "burst {burst}");
        }
        let error = engine.start(&[1; 41], options(1, 1)).err();
        assert!(matches!(error, Some(Error::ContextFull { needed: 41, limit: 40 })), "{error:?}");
    }
}

#[test]
fn stop_strings_end_the_text_at_any_burst() {
    for mut engine in engines(128) {
        let whole = answer(&mut engine, &PROMPT, options(60, 1)).text;
        let at = whole.char_indices().nth(whole.chars().count() / 2).expect("some text").0;
        let stop: String = whole[at..].chars().take(3).collect();
        for burst in [1, 4, 16] {
            let a = answer(&mut engine, &PROMPT, GenerateOptions { stop: vec![stop.clone()], ..options(60, burst) });
            assert_eq!(a.finish.stop_reason, StopReason::StopString);
            assert_eq!(a.text, whole[..whole.find(&stop).unwrap()]);
        }
    }
}

#[test]
fn an_answer_leaves_nothing_behind() {
    for (mut engine, mut fresh) in engines(256).into_iter().zip(engines(256)) {
        let expected = answer(&mut fresh, &PROMPT, options(40, 1)).ids;
        // Left in the middle, with bursts in flight.
        for burst in [1, 7] {
            let mut left = engine.start(&[9, 9, 9, 9, 9, 9, 9], options(100, burst)).unwrap();
            for _ in 0..3 {
                block_on(engine.next(&mut left)).unwrap();
            }
            drop(left);
            assert_eq!(answer(&mut engine, &PROMPT, options(40, burst)).ids, expected, "burst {burst}");
        }
        // The next turn begins with what is cached, and ends where a cold run ends.
        let turn: Vec<u32> = PROMPT.iter().chain(&expected).copied().chain([3, 4, 5]).collect();
        let warm = answer(&mut engine, &turn, options(20, 4)).ids;
        fresh.clear();
        assert_eq!(answer(&mut fresh, &turn, options(20, 1)).ids, warm);
    }
}

#[test]
fn the_cpu_gives_each_token_as_it_comes() {
    let mut engine = engines(256).remove(0);
    let adaptive = GenerateOptions { policy: None, ..options(200, 1) };
    let mut generation = engine.start(&PROMPT, adaptive).unwrap();
    while let Some(piece) = block_on(engine.next(&mut generation)).unwrap() {
        assert!(piece.ids.len() <= 1);
    }
    assert_eq!(generation.finish().unwrap().stats.longest_burst, 1);
}

#[test]
fn a_later_generation_ends_the_one_before() {
    for mut engine in engines(128) {
        let expected = answer(&mut engine, &PROMPT, options(10, 1)).ids;
        let mut first = engine.start(&[1, 2, 3], options(50, 2)).unwrap();
        block_on(engine.next(&mut first)).unwrap();
        assert_eq!(answer(&mut engine, &PROMPT, options(10, 2)).ids, expected);
        assert!(matches!(block_on(engine.next(&mut first)), Err(Error::Superseded)));
    }
}

#[test]
fn options_out_of_range_are_named() {
    let mut engine = engines(64).remove(0);
    let cases: [(GenerateOptions, &str); 5] = [
        (GenerateOptions { max_tokens: 0, ..Default::default() }, "max tokens"),
        (GenerateOptions { sampling: Sampling::new(-1.0, 0), ..Default::default() }, "temperature"),
        (GenerateOptions { sampling: Sampling::new(f32::NAN, 0), ..Default::default() }, "temperature"),
        (GenerateOptions { policy: Some(Policy::fixed(65, 4)), ..Default::default() }, "burst"),
        (GenerateOptions { stop: vec![String::new()], ..Default::default() }, "stop"),
    ];
    for (options, name) in cases {
        let error = engine.start(&PROMPT, options).err();
        assert!(matches!(&error, Some(Error::BadOption { option, .. }) if *option == name), "{name}: {error:?}");
    }
    assert!(matches!(engine.start(&[], options(1, 1)).err(), Some(Error::BadOption { option: "prompt", .. })));
    assert!(matches!(engine.start(&[70_000], options(1, 1)).err(), Some(Error::BadToken { id: 70_000, .. })));
}
