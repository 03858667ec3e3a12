//! Sequences of models with recurrent layers go back, and go on as one that was never elsewhere: the same bits as a fresh engine's.

mod common;

use blueshift::engine::{BackendChoice, Engine, GenerateOptions, LoadOptions, Policy};
use blueshift::gguf::Source;
use blueshift::micro::MicroModel;
use blueshift::quant::QuantType;
use blueshift::sample::Sampling;
use common::{answer, some_ids};
use pollster::block_on;

fn load(backend: BackendChoice) -> Engine {
    let source = Source::memory("micro", MicroModel::qwen35(QuantType::Q4_1).bytes());
    block_on(Engine::load(source, LoadOptions { backend, gpu: common::gpu_for(backend), ..Default::default() }))
        .expect("the model loads")
}

/// A long burst, several of them in flight: what is drawn behind an end has been fed.
fn options(max_tokens: usize) -> GenerateOptions {
    let policy = Some(Policy::fixed(16, 4));
    GenerateOptions { max_tokens, ignore_eos: true, policy, sampling: Sampling::new(0.8, 3), ..Default::default() }
}

fn ids_of(engine: &mut Engine, prompt: &[u32], options: GenerateOptions) -> Vec<u32> {
    answer(engine, prompt, options).expect("an answer").ids
}

fn bits(logits: Vec<f32>) -> Vec<u32> {
    logits.into_iter().map(f32::to_bits).collect()
}

/// Runs a test on every backend there is: an engine, and one that is cleared before each question.
fn on_backends(test: impl Fn(&mut Engine, &mut dyn FnMut(&[u32], GenerateOptions) -> Vec<u32>)) {
    for backend in [BackendChoice::Cpu, BackendChoice::Gpu] {
        if backend == BackendChoice::Gpu && !common::has_adapter() {
            return;
        }
        let mut fresh = load(BackendChoice::Cpu);
        let mut ask_fresh = |prompt: &[u32], options| {
            fresh.clear();
            ids_of(&mut fresh, prompt, options)
        };
        test(&mut load(backend), &mut ask_fresh);
    }
}

#[test]
fn prompts_that_share_a_beginning() {
    on_backends(|engine, fresh| {
        // Past two pages; parting inside the first, at a page's end, behind it, and in the last token; then one that goes on.
        let long = some_ids(150, 256);
        for parting in [150, 20, 64, 128, 129, 149, 0, 150] {
            let mut prompt = long.clone();
            prompt.iter_mut().skip(parting).for_each(|id| *id ^= 1);
            assert_eq!(ids_of(engine, &prompt, options(9)), fresh(&prompt, options(9)), "parting at {parting}");
        }
        let first = ids_of(engine, &long, options(30));
        let next = [&long[..], &first[..], &[7, 8, 9]].concat();
        assert_eq!(ids_of(engine, &next, options(9)), fresh(&next, options(9)), "the conversation goes on");
        assert!(engine.position() > next.len());
    });
}

#[test]
fn what_was_drawn_behind_an_end_is_forgotten() {
    on_backends(|engine, fresh| {
        let prompt = some_ids(70, 256);
        let whole = fresh(&prompt, options(40));
        let stop = GenerateOptions { stop_ids: vec![whole[5]], ..options(40) };
        let per_burst = Policy { stop_check: blueshift::engine::policy::StopCheck::PerBurst, ..Policy::fixed(16, 4) };
        for options_of in [stop.clone(), GenerateOptions { policy: Some(per_burst), ..stop }] {
            let found = ids_of(engine, &prompt, options_of);
            assert_eq!(found[..], whole[..found.len()]);
            let next = [&prompt[..], &found[..], &[1, 2, 3]].concat();
            assert_eq!(ids_of(engine, &next, options(9)), fresh(&next, options(9)));
        }
        // A generation that is given up on in the middle.
        let mut generation = engine.start(&prompt, options(40)).expect("valid options");
        for _ in 0..3 {
            block_on(engine.next(&mut generation)).expect("a piece");
        }
        drop(generation);
        assert_eq!(ids_of(engine, &prompt, options(40)), whole);
    });
}

#[test]
fn single_steps_after_a_rewind() {
    on_backends(|engine, _| {
        let mut fresh = load(BackendChoice::Cpu);
        let ids = some_ids(100, 256);
        let mut wanted = |n: usize| bits(block_on(fresh.logits(&ids[..n], 0, false)).expect("logits"));
        block_on(engine.logits(&ids, 0, false)).expect("logits");
        for position in [90, 64, 3, 0, 1] {
            engine.rewind(position);
            let row = block_on(engine.decode_step_logits(ids[position])).expect("a row");
            assert_eq!(bits(row.values), wanted(position + 1), "back at {position}");
            if position == 90 {
                for id in &ids[91..] {
                    block_on(engine.advance_with_token(*id)).expect("a step");
                }
                engine.rewind(99);
                let drawn = block_on(engine.decode_burst(ids[99], 5, &Sampling::GREEDY, &[])).expect("a burst");
                assert_eq!((drawn.ids.len(), engine.position()), (5, 104));
                engine.rewind(95);
            }
        }
    });
}
