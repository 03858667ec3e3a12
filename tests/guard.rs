//! The guard: a value that overflows is found in the layer that wrote it, nothing of it is shown, and the sequence goes on from before it.

mod common;

use blueshift::Error;
use blueshift::engine::policy::{Guard, Reaction};
use blueshift::engine::{BackendChoice, Engine, GenerateOptions, LoadOptions, Policy, Pooling};
use blueshift::gguf::{self, Source};
use blueshift::micro::MicroModel;
use blueshift::quant::QuantType;
use blueshift::sample::Sampling;
use common::{answer, engines, with_tensor_of};
use pollster::block_on;

const PROMPT: [u32; 6] = [5, 80, 21, 200, 7, 90];

fn micro() -> MicroModel {
    MicroModel { n_layers: 4, ..MicroModel::llama(QuantType::Q8_0) }
}

fn options(policy: Policy) -> GenerateOptions {
    let sampling = Sampling::new(0.8, 3);
    GenerateOptions { max_tokens: 20, sampling, ignore_eos: true, policy: Some(policy), ..Default::default() }
}

fn guarded(limit: f32, reaction: Reaction) -> Policy {
    Policy { guard: Some(Guard { limit, reaction }), ..Policy::default() }
}

#[test]
fn an_overflow_names_its_layer_and_emits_nothing() {
    // In each layer by way of its feed-forward part, in gemma3 in a norm that adds to the stream.
    let gemma = MicroModel { n_layers: 4, ..MicroModel::gemma3(QuantType::Q4_0) };
    for (model, part, layers) in
        [(micro(), "ffn_norm", 0..4), (micro(), "attn_norm", 1..3), (gemma, "post_ffw_norm", 1..4)]
    {
        for wanted in layers {
            let bytes = with_tensor_of(&format!("blk.{wanted}.{part}.weight"), 3e38, model.bytes());
            for mut engine in engines("overflow", &bytes, 64) {
                for reaction in [Reaction::Error, Reaction::Widen { window: 4 }] {
                    let mut generation = engine.start(&PROMPT, options(guarded(f32::INFINITY, reaction))).unwrap();
                    let found = block_on(engine.next(&mut generation));
                    let (layer, position) = match found {
                        Err(Error::NotFinite { layer: Some(layer), position, not_finite: true }) => (layer, position),
                        _ => panic!("{part} of layer {wanted}, {}: {found:?}", engine.info().backend),
                    };
                    // What the last layer writes is only read in the row that is drawn from.
                    let wanted_position = if wanted == 3 { PROMPT.len() - 1 } else { 0 };
                    assert_eq!((layer, position), (wanted, wanted_position), "{part}, {}", engine.info().backend);
                    assert_eq!(engine.position(), wanted_position);
                    assert!(block_on(engine.next(&mut generation)).unwrap().is_none(), "a failed generation has ended");
                }
                assert!(matches!(block_on(engine.logits(&PROMPT, 0, true)), Err(Error::NotFinite { .. })));
                // Without it the gibberish would have gone on, or nothing could have been drawn.
                let blind = answer(&mut engine, &PROMPT, options(Policy { guard: None, ..Policy::default() }));
                assert!(!matches!(blind, Err(Error::NotFinite { .. })));
            }
        }
    }
}

/// A model with f32 embeddings in which the row of `token`, if any, is huge, though finite.
fn with_huge_row(token: Option<u32>) -> Vec<u8> {
    let model = MicroModel { head_quant: QuantType::F32, tied: false, ..micro() };
    let mut bytes = model.bytes();
    if let Some(token) = token {
        let file = block_on(gguf::open(Source::memory("micro", bytes.clone()))).unwrap();
        let start = file.header.tensor("token_embd.weight").unwrap().offset as usize + token as usize * model.d * 4;
        for four in bytes[start..start + model.d * 4].chunks_exact_mut(4) {
            four.copy_from_slice(&1e6f32.to_le_bytes());
        }
    }
    bytes
}

/// The limit of f16, which those rows exceed.
const LIMIT: f32 = 65504.0;

/// The fifth token of the answer trips when it is fed: the tokens up to it are shown, and the sequence goes on from before it.
#[test]
fn a_trip_in_the_middle_of_an_answer() {
    let ids =
        answer(&mut engines("micro", &with_huge_row(None), 64)[0], &PROMPT, options(Policy::default())).unwrap().ids;
    let token = ids[4];
    assert!(!ids[..4].contains(&token) && !PROMPT.contains(&token), "choose another seed");
    for mut engine in engines("micro", &with_huge_row(Some(token)), 64) {
        let blind = answer(&mut engine, &PROMPT, options(Policy { guard: None, ..Policy::default() })).unwrap().ids;
        assert_eq!(blind[..5], ids[..5]);
        for (burst, in_flight) in [(1, 1), (1, 4), (3, 4), (16, 2)] {
            let flow = Policy::fixed(burst, in_flight);
            let guard = |reaction| Policy { guard: Some(Guard { limit: LIMIT, reaction }), ..flow };
            let mut generation = engine.start(&PROMPT, options(guard(Reaction::Error))).unwrap();
            let mut shown = Vec::new();
            let error = loop {
                match block_on(engine.next(&mut generation)) {
                    Ok(piece) => shown.extend(piece.expect("it has not ended").ids),
                    Err(error) => break error,
                }
            };
            assert!(
                matches!(error, Error::NotFinite { layer: None, position: 10, not_finite: false }),
                "burst {burst}: {error:?}"
            );
            assert_eq!(shown, ids[..5], "burst {burst}");
            assert_eq!(engine.position(), PROMPT.len() + 4, "the token that trips is not in the sequence");
            // The sequence is as if the step had never run.
            let turn = [&PROMPT[..], &ids[..4], &[1]].concat();
            let next = answer(&mut engine, &turn, options(flow)).unwrap();
            assert_eq!(next.finish.timings.cached_tokens, turn.len() - 1);
            engine.clear();
            assert_eq!(answer(&mut engine, &turn, options(flow)).unwrap().ids, next.ids);

            // A wider range does the step again, for as many tokens as the window says.
            let found = answer(&mut engine, &PROMPT, options(guard(Reaction::Widen { window: 2 }))).unwrap();
            assert_eq!(found.ids, blind, "burst {burst}");
            let stats = found.finish.stats;
            assert!(stats.widened >= 1 && stats.guard_trips == stats.widened, "{stats:?}");
            // The same where the prompt trips.
            let turn = [&PROMPT[..], &ids[..6]].concat();
            engine.clear();
            let wide = answer(&mut engine, &turn, options(guard(Reaction::Widen { window: 1 }))).unwrap();
            assert!(wide.finish.stats.widened >= 1);
            assert_eq!(wide.ids, answer(&mut engine, &turn, options(Policy { guard: None, ..flow })).unwrap().ids);
        }
        // Wider for as long as there are tokens.
        let reaction = Reaction::Widen { window: usize::MAX };
        let forever = answer(&mut engine, &PROMPT, options(guarded(LIMIT, reaction))).unwrap();
        assert_eq!((&forever.ids, forever.finish.stats.widened), (&blind, 1));
    }
}

/// Steps are guarded as the engine was loaded; a burst that trips leaves the sequence as it was, also where it drew something.
#[test]
fn steps_of_an_engine_with_a_limit() {
    let ids =
        answer(&mut engines("micro", &with_huge_row(None), 64)[0], &PROMPT, options(Policy::default())).unwrap().ids;
    let token = ids[4];
    let choices = [BackendChoice::Cpu, BackendChoice::Gpu];
    for backend in choices.into_iter().filter(|choice| *choice == BackendChoice::Cpu || common::has_adapter()) {
        let policy = guarded(LIMIT, Reaction::Error);
        let load =
            LoadOptions { backend, gpu: common::gpu_for(backend), n_ctx: Some(64), policy, ..Default::default() };
        let source = Source::memory("micro", with_huge_row(Some(token)));
        let mut engine = block_on(Engine::load(source, load)).unwrap();
        for token in &PROMPT[..5] {
            block_on(engine.advance_with_token(*token)).unwrap();
        }
        let sampling = options(policy).sampling;
        let drawn = block_on(engine.decode_burst(PROMPT[5], 5, &sampling, &[])).unwrap();
        assert_eq!(drawn.ids, ids[..5]);
        engine.rewind(5);
        let tripped = block_on(engine.decode_burst(PROMPT[5], 8, &sampling, &[])).err();
        assert!(
            matches!(tripped, Some(Error::NotFinite { layer: None, position: 10, not_finite: false })),
            "{tripped:?}"
        );
        assert_eq!(engine.position(), 5);
        assert!(matches!(block_on(engine.advance_with_token(token)), Err(Error::NotFinite { .. })));
        assert_eq!(block_on(engine.decode_burst(PROMPT[5], 5, &sampling, &[])).unwrap().ids, ids[..5]);
    }
}

#[test]
fn it_costs_no_dispatch() {
    if !common::has_adapter() {
        return;
    }
    let mut engine = engines("micro", &micro().bytes(), 64).remove(1);
    let mut dispatches = |guard| {
        let before = engine.counters();
        answer(&mut engine, &PROMPT, options(Policy { guard, ..Policy::fixed(4, 2) })).unwrap();
        let cost = engine.counters() - before;
        engine.clear();
        (cost.dispatches, cost.submits, cost.maps, cost.bytes_read)
    };
    let unguarded = dispatches(None);
    assert_eq!(dispatches(Some(Guard { limit: f32::INFINITY, reaction: Reaction::Error })), unguarded);
}

#[test]
fn single_steps_are_guarded() {
    let bytes = with_tensor_of("blk.2.ffn_norm.weight", 3e38, micro().bytes());
    for mut engine in engines("overflow", &bytes, 64) {
        let trips =
            |found: blueshift::Result<()>| matches!(found, Err(Error::NotFinite { layer: Some(2), position: 0, .. }));
        assert!(trips(block_on(engine.decode_step_logits(7)).map(drop)));
        assert!(trips(block_on(engine.decode_burst(7, 4, &Sampling::GREEDY, &[])).map(drop)));
        assert!(trips(block_on(engine.decode_step(7, &Sampling::GREEDY)).map(drop)));
        assert!(trips(block_on(engine.advance_with_embedding(&[7, 8], Pooling::Mean)).map(drop)));
        assert_eq!(engine.position(), 0);
    }
}
