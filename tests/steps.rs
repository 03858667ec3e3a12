//! The step functions, what they refuse, the ring they leave their results in, and what is done where the device draws what cannot be.

mod common;

use std::sync::Arc;

use blueshift::Error;
use blueshift::cpu::backend::{CpuBackend, CpuWeights};
use blueshift::engine::backend::{Backend, Burst, Execution, First, Readback, RingSize, Row, RowEnd};
use blueshift::engine::{BackendChoice, Engine, GenerateOptions, LoadOptions, Policy, Pooling};
use blueshift::gguf::{self, Source};
use blueshift::gpu::{Gpu, GpuBackend, GpuWeights, ShaderPatch};
use blueshift::micro::MicroModel;
use blueshift::model::Model;
use blueshift::quant::QuantType;
use blueshift::sample::Sampling;
use common::{answer, engines, some_ids};
use pollster::block_on;

fn micro() -> Vec<u8> {
    MicroModel::llama3(QuantType::Q4_0).bytes()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn steps_give_logits_and_embeddings() {
    let mut all = engines("micro", &micro(), 300);
    let ids = some_ids(70, 512);
    let rows = block_on(all[0].logits(&ids, 0, true)).unwrap();
    let n_vocab = all[0].info().n_vocab;
    all[0].clear();
    let states = block_on(all[0].advance_with_embedding(&ids, Pooling::None)).unwrap();
    let d = states.len() / ids.len();
    for engine in &mut all {
        let is_gpu = engine.info().backend == "wgpu";
        engine.clear();
        for (position, id) in ids.iter().enumerate() {
            let row = block_on(engine.decode_step_logits(*id)).unwrap();
            assert_eq!(bits(&row.values), bits(&rows[position * n_vocab..][..n_vocab]), "position {position}");
            assert_eq!((row.n_vocab, row.dtype, row.buffer.is_some()), (n_vocab, "f32", is_gpu));
            if let Some(buffer) = row.buffer {
                let buffer: &wgpu::Buffer = buffer.get().unwrap();
                assert!(buffer.size() >= 4 * n_vocab as u64);
            }
        }
        assert_eq!(engine.position(), ids.len());
        // However the tokens are fed, the hidden states are the same.
        for whole in [true, false] {
            engine.clear();
            let mut found = Vec::new();
            for part in ids.chunks(if whole { ids.len() } else { 1 }) {
                found.extend(block_on(engine.advance_with_embedding(part, Pooling::None)).unwrap());
            }
            assert_eq!(bits(&found), bits(&states), "{}", engine.info().backend);
        }
        engine.clear();
        let last = block_on(engine.advance_with_embedding(&ids, Pooling::Last)).unwrap();
        assert_eq!(bits(&last), bits(&states[states.len() - d..]));
        engine.clear();
        let mean = block_on(engine.advance_with_embedding(&ids, Pooling::Mean)).unwrap();
        let expected = |i: usize| states.iter().skip(i).step_by(d).fold(0.0f32, |sum, x| sum + x) / ids.len() as f32;
        assert_eq!(bits(&mean), (0..d).map(|i| expected(i).to_bits()).collect::<Vec<_>>());
        // A sequence goes on from where it was rewound to.
        engine.rewind(40);
        let row = block_on(engine.decode_step_logits(ids[40])).unwrap();
        assert_eq!(bits(&row.values), bits(&rows[40 * n_vocab..][..n_vocab]));
    }
}

#[test]
fn what_cannot_run_is_refused_before_anything_is_submitted() {
    for mut engine in engines("micro", &micro(), 16) {
        let submits = engine.counters().submits;
        let greedy = Sampling::GREEDY;
        let mut burst = |token, steps, stops: &[u32]| block_on(engine.decode_burst(token, steps, &greedy, stops)).err();
        for steps in [0, 65] {
            let refused = burst(1, steps, &[]);
            assert!(matches!(refused, Some(Error::BadOption { option: "burst", .. })), "{refused:?}");
        }
        assert!(matches!(burst(9999, 1, &[]), Some(Error::BadToken { id: 9999, .. })));
        let stops: Vec<u32> = (0..65).collect();
        assert!(matches!(burst(1, 1, &stops), Some(Error::BadOption { option: "stop ids", .. })));
        assert!(matches!(
            block_on(engine.advance_with_embedding(&some_ids(17, 512), Pooling::Mean)),
            Err(Error::ContextFull { needed: 17, limit: 16 })
        ));
        assert!(matches!(
            block_on(engine.advance_with_embedding(&[], Pooling::Mean)),
            Err(Error::BadOption { option: "prompt", .. })
        ));
        assert_eq!(engine.counters().submits, submits, "nothing was submitted");
        // A burst that reaches the end of the context ends there.
        for token in 0..12 {
            block_on(engine.advance_with_token(token)).unwrap();
        }
        let drawn = block_on(engine.decode_burst(1, 8, &greedy, &[])).unwrap();
        assert_eq!((drawn.ids.len(), drawn.end), (4, Some(RowEnd::ContextFull)), "{}", engine.info().backend);
        assert_eq!(engine.position(), 16);
        // 64 stop ids are the most a request may have, the model's own included.
        let options = GenerateOptions { stop_ids: (0..64).collect(), ..Default::default() };
        let error = engine.start(&[1], options).err();
        assert!(matches!(error, Some(Error::BadOption { option: "stop ids", .. })), "{error:?}");
    }
}

#[test]
fn weights_that_are_not_on_the_device_are_named() {
    block_on(async {
        let file = gguf::open(Source::memory("micro", micro())).await.unwrap();
        let plan = Arc::new(Model::open(&file).await.unwrap().plan);
        let missing = CpuBackend::new(plan.clone(), CpuWeights::default(), 64).err();
        assert!(matches!(missing, Some(Error::BadTensor { .. })), "{missing:?}");
        if common::has_adapter() {
            let gpu = common::open_gpu();
            let missing = GpuBackend::new(&gpu, plan, GpuWeights::new(&gpu), 64).await.err();
            assert!(matches!(missing, Some(Error::BadTensor { .. })), "{missing:?}");
        }
    });
}

#[test]
fn the_ring_is_not_overrun_and_not_made_anew_without_need() {
    if !common::has_adapter() {
        return;
    }
    block_on(async {
        let gpu = common::open_gpu();
        let mut backend = common::gpu_backend(&gpu, micro(), 128).await;
        let greedy = Sampling::GREEDY;
        let rows = |first, position| [Row::new(0, first, position, &greedy)];
        let prompt = [1, 2, 3];
        let fill = async |backend: &mut GpuBackend| {
            backend.feed(0, &prompt, 0).await.unwrap();
            backend.head(0, 2).await.unwrap();
        };
        fill(&mut backend).await;
        let expected =
            backend.burst(Burst { rows: &rows(First::FromLogits, 3), steps: 40 }).await.unwrap()[0].ids.clone();

        // The same size is no work, single steps and bursts share one ring.
        let created = backend.counters().buffers_created;
        backend.configure(Execution::default()).unwrap();
        fill(&mut backend).await;
        let mut ids =
            backend.burst(Burst { rows: &rows(First::FromLogits, 3), steps: 1 }).await.unwrap()[0].ids.clone();
        ids.extend(&backend.burst(Burst { rows: &rows(First::FromState, 3), steps: 20 }).await.unwrap()[0].ids);
        assert_eq!(ids, expected[..21]);
        assert_eq!(backend.counters().buffers_created, created);
        let counters = backend.ring_counters();
        assert_eq!((counters.acquisitions, counters.reuses, counters.reallocations), (3, 0, 0));

        // Another size is.
        backend.configure(Execution { ring: RingSize { slots: 2, steps: 8 }, ..Execution::default() }).unwrap();
        assert!(backend.counters().buffers_created > created);
        fill(&mut backend).await;
        let first = backend.submit_burst(Burst { rows: &rows(First::FromLogits, 3), steps: 8 }).unwrap();
        let second = backend.submit_burst(Burst { rows: &rows(First::FromState, 10), steps: 8 }).unwrap();
        let third = backend.submit_burst(Burst { rows: &rows(First::FromState, 18), steps: 8 }).err();
        assert!(matches!(third, Some(Error::RingFull { slots: 2 })), "{third:?}");
        let mut ids = first.drawn().await.unwrap()[0].ids.clone();
        // The slot that was read is free, and what is refused was not lost.
        let third = backend.submit_burst(Burst { rows: &rows(First::FromState, 18), steps: 8 }).unwrap();
        ids.extend(&second.drawn().await.unwrap()[0].ids);
        ids.extend(&third.drawn().await.unwrap()[0].ids);
        assert_eq!(ids, expected[..24]);
        let counters = backend.ring_counters();
        assert_eq!((counters.acquisitions, counters.reallocations), (6, 1));
        assert!(counters.reuses >= 1);
        let long = backend.submit_burst(Burst { rows: &rows(First::Token(1), 3), steps: 9 }).err();
        assert!(matches!(long, Some(Error::BadOption { option: "burst", .. })), "{long:?}");

        for (slots, steps, name) in
            [(0, 8, "ring slots"), (17, 8, "ring slots"), (2, 0, "ring steps"), (2, 257, "ring steps")]
        {
            let refused =
                backend.configure(Execution { ring: RingSize { slots, steps }, ..Execution::default() }).err();
            assert!(matches!(refused, Some(Error::BadOption { option, .. }) if option == name), "{refused:?}");
        }
        // A refused size leaves the ring as it was.
        fill(&mut backend).await;
        assert_eq!(
            backend.burst(Burst { rows: &rows(First::FromLogits, 3), steps: 8 }).await.unwrap()[0].ids,
            expected[..8]
        );
    });
}

fn options(policy: Policy) -> GenerateOptions {
    let sampling = Sampling::new(0.9, 4);
    GenerateOptions { max_tokens: 24, sampling, ignore_eos: true, policy: Some(policy), ..Default::default() }
}

#[test]
fn in_strict_mode_only_tokens_are_read() {
    if !common::has_adapter() {
        return;
    }
    let mut engine = engines("micro", &micro(), 128).remove(1);
    let expected = answer(&mut engine, &[1, 2, 3], options(Policy::default())).unwrap().ids;
    engine.restrict_readbacks(Some(vec![Readback::Tokens]));
    engine.clear();
    let before = engine.counters();
    assert_eq!(answer(&mut engine, &[1, 2, 3], options(Policy::fixed(4, 2))).unwrap().ids, expected);
    let cost = engine.counters() - before;
    // One word a step: what was read and what was in flight at the end, which is not read.
    assert!(cost.bytes_read >= 4 * 24 && cost.bytes_read <= 4 * (24 + 8), "{cost:?}");
    let refused = block_on(engine.logits(&[1, 2], 0, false)).err();
    assert!(matches!(&refused, Some(Error::UnexpectedReadback { purpose }) if purpose == "logits"), "{refused:?}");
    let refused =
        answer(&mut engine, &[1, 2], GenerateOptions { logprobs: Some(0), ..options(Policy::default()) }).err();
    assert!(matches!(refused, Some(Error::UnexpectedReadback { .. })), "{refused:?}");
    engine.restrict_readbacks(None);
    assert!(block_on(engine.logits(&[1, 2], 0, false)).is_ok());
}

/// With several bursts in flight the next one has been submitted when one is read, all through the answer.
#[test]
fn bursts_overlap() {
    if !common::has_adapter() {
        return;
    }
    let mut engine = engines("micro", &micro(), 256).remove(1);
    for (burst, in_flight) in [(1, 4), (4, 3), (4, 2)] {
        let long = GenerateOptions { max_tokens: 101, ..options(Policy::fixed(burst, in_flight)) };
        let stats = answer(&mut engine, &[1, 2, 3], long).unwrap().finish.stats;
        let bursts = 1 + 100 / burst as u64;
        // Behind the last one there is nothing.
        assert_eq!((stats.bursts, stats.overlapped_bursts), (bursts, bursts - 1), "{stats:?}");
        assert_eq!((stats.deepest, stats.longest_burst, stats.discarded_steps), (in_flight, burst, 0), "{stats:?}");
        assert!(stats.record_ms >= 0.0 && stats.readback_wait_ms >= 0.0 && stats.latency_ms > 0.0);
    }
    let stats = answer(&mut engine, &[1, 2, 3], options(Policy::fixed(4, 1))).unwrap().finish.stats;
    assert_eq!(stats.overlapped_bursts, 0);
}

#[test]
fn aborting_in_flight_leaks_nothing() {
    for mut engine in engines("micro", &micro(), 256) {
        let expected = answer(&mut engine, &[1, 2, 3], options(Policy::fixed(3, 4))).unwrap().ids;
        let before = engine.counters();
        for i in 0..20 {
            let long = GenerateOptions { max_tokens: 200, ..options(Policy::fixed(3, 4)) };
            let mut left = engine.start(&[9, 8, 7, i], long).unwrap();
            for _ in 0..=i % 4 {
                block_on(engine.next(&mut left)).unwrap();
            }
        }
        let cost = engine.counters() - before;
        assert_eq!((cost.buffers_created, cost.bind_groups_created), (0, 0));
        assert_eq!(answer(&mut engine, &[1, 2, 3], options(Policy::fixed(3, 4))).unwrap().ids, expected);
    }
}

/// An engine whose device draws, from position 100 on, what `to` says.
fn broken_sampler(to: &'static str) -> Engine {
    let patch = ShaderPatch { stem: "sample_finish", from: "finish(group.y, winner.x, winner.y);", to };
    let gpu = block_on(Gpu::open_patched(patch)).unwrap();
    let load = LoadOptions { backend: BackendChoice::Gpu, gpu: Some(gpu), n_ctx: Some(128), ..Default::default() };
    block_on(Engine::load(Source::memory("micro", micro()), load)).unwrap()
}

#[test]
fn a_device_that_draws_what_cannot_be_draws_no_more() {
    if !common::has_adapter() {
        return;
    }
    let prompt = some_ids(90, 512);
    let mut cpu = engines("micro", &micro(), 128).remove(0);
    let banned = Sampling { repeat_penalty: 1.2, ..Sampling::new(0.9, 4) }.suppressing(&[3]);
    for (to, id) in [
        ("finish(group.y, winner.x, select(winner.y, 0xfffff0u, batch.states[0].position >= 100u));", Some(0xff_fff0)),
        (
            "finish(group.y, winner.x, select(winner.y, 0xffffffffu, batch.states[0].position >= 100u));",
            Some(0xff_ffff),
        ),
        (
            "finish(group.y, winner.x, select(winner.y, 0x04000001u, batch.states[0].position >= 100u));",
            Some(0xff_ffff),
        ),
        ("finish(group.y, winner.x, select(winner.y, 3u, batch.states[0].position >= 100u));", Some(3)),
        ("finish(group.y, select(winner.x, 0u, batch.states[0].position >= 100u), winner.y);", None),
    ] {
        let mut engine = broken_sampler(to);
        for (burst, logprobs) in [(1, None), (7, None), (1, Some(2))] {
            let options = GenerateOptions { sampling: banned.clone(), logprobs, ..options(Policy::fixed(burst, 4)) };
            let expected = answer(&mut cpu, &prompt, options.clone()).unwrap().ids;
            let found = answer(&mut engine, &prompt, options).unwrap();
            assert_eq!(found.ids, expected, "burst {burst}");
            assert_eq!(found.finish.stats.fallbacks, 1);
            let draw = found.finish.invalid_draw.expect("it is told");
            assert_eq!((draw.id, draw.position, draw.not_finite), (id, 101, 0));
            assert!(draw.least < draw.largest && draw.mean.is_finite());
        }
    }
}

#[test]
fn where_nothing_can_be_drawn_nothing_is() {
    let everything: Vec<u32> = (0..512).collect();
    for mut engine in engines("micro", &micro(), 128) {
        for sampling in [Sampling::GREEDY, Sampling { top_k: 5, ..Sampling::new(1.0, 1) }] {
            let options = GenerateOptions { sampling: sampling.suppressing(&everything), ..Default::default() };
            let error = answer(&mut engine, &[1, 2, 3], options).err();
            assert!(matches!(error, Some(Error::NoCandidate { position: 3, .. })), "{error:?}");
        }
        assert!(answer(&mut engine, &[1, 2, 3], options(Policy::default())).is_ok());
    }
}

#[test]
fn logprobs_are_the_same_everywhere() {
    let mut seen = None;
    for mut engine in engines("micro", &micro(), 128) {
        let plain = answer(&mut engine, &[1, 2, 3], options(Policy::default())).unwrap().ids;
        let mut generation =
            engine.start(&[1, 2, 3], GenerateOptions { logprobs: Some(20), ..options(Policy::default()) }).unwrap();
        let (mut ids, mut logprobs) = (Vec::new(), Vec::new());
        while let Some(piece) = block_on(engine.next(&mut generation)).unwrap() {
            assert_eq!(piece.ids.len(), piece.logprobs.len());
            ids.extend(piece.ids);
            logprobs.extend(piece.logprobs);
        }
        assert_eq!(ids, plain, "{}", engine.info().backend);
        for (id, l) in ids.iter().zip(&logprobs) {
            assert_eq!(l.top.len(), 20);
            assert!(l.top.windows(2).all(|w| w[0].1 >= w[1].1) && l.chosen <= l.top[0].1 && l.chosen < 0.0);
            assert!(l.top.iter().all(|(top, logprob)| top != id || *logprob == l.chosen));
        }
        let all = logprobs.iter().flat_map(|l| l.top.iter().map(|t| t.1).chain([l.chosen]));
        let all: Vec<u32> = all.map(f32::to_bits).collect();
        assert_eq!(*seen.get_or_insert(all.clone()), all);
    }
}
