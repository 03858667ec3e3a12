//! What a decoded token costs on the GPU with bursts in flight: one submit and one map a burst, four bytes a token, nothing created.

mod common;

use blueshift::engine::backend::Counters;
use blueshift::engine::{BackendChoice, Engine, GenerateOptions, LoadOptions, Policy};
use blueshift::gguf::Source;
use blueshift::micro::MicroModel;
use blueshift::quant::QuantType;
use blueshift::sample::Sampling;
use pollster::block_on;

fn counters_of_bursts(sampling: Sampling, burst: usize, n_bursts: usize) -> Counters {
    counters_of(MicroModel::llama(QuantType::Q4_0), sampling, burst, n_bursts)
}

fn counters_of(model: MicroModel, sampling: Sampling, burst: usize, n_bursts: usize) -> Counters {
    let policy = Some(Policy::fixed(burst, 4));
    let options = GenerateOptions { max_tokens: 1000, sampling, policy, ignore_eos: true, ..Default::default() };
    let source = Source::memory("micro", model.bytes());
    let backend = BackendChoice::Gpu;
    let load = LoadOptions { backend, gpu: common::gpu_for(backend), ..Default::default() };
    let mut engine = block_on(Engine::load(source, load)).unwrap();
    let mut generation = engine.start(&[1, 2, 3], options).unwrap();
    // The first token and a warm-up burst.
    for _ in 0..2 {
        block_on(engine.next(&mut generation)).unwrap();
    }
    let before = engine.counters();
    for _ in 0..n_bursts {
        let piece = block_on(engine.next(&mut generation)).unwrap().unwrap();
        assert_eq!(piece.ids.len(), burst);
    }
    engine.counters() - before
}

#[test]
fn a_burst_is_one_submit_one_map_and_four_bytes_a_token() {
    if !common::has_adapter() {
        return;
    }
    for (temperature, burst) in [(0.0, 1), (0.0, 8), (0.8, 8)] {
        let cost = counters_of_bursts(Sampling::new(temperature, 0), burst, 3);
        let case = format!("T {temperature}, burst {burst}: {cost:?}");
        assert_eq!(cost.submits, 3, "{case}");
        assert_eq!(cost.maps, 3, "{case}");
        assert_eq!(cost.bytes_read, 3 * burst as u64 * 4, "{case}");
        assert_eq!(cost.buffers_created, 0, "{case}");
        assert_eq!(cost.bind_groups_created, 0, "{case}");
        assert_eq!(cost.dispatches % (3 * burst as u64), 0, "{case}: the same dispatches for every token");
    }
}

#[test]
fn adjusting_costs_no_dispatch_and_filtering_two() {
    if !common::has_adapter() {
        return;
    }
    let dispatches = |sampling: Sampling| {
        let cost = counters_of_bursts(sampling, 8, 3);
        assert_eq!([cost.submits, cost.maps, cost.bytes_read], [3, 3, 3 * 8 * 4], "{cost:?}");
        assert_eq!([cost.buffers_created, cost.bind_groups_created], [0, 0], "{cost:?}");
        cost.dispatches / 24
    };
    let plain = dispatches(Sampling::new(0.8, 0));
    assert_eq!(dispatches(Sampling { repeat_penalty: 1.1, ..Sampling::new(0.8, 0) }), plain);
    assert_eq!(dispatches(Sampling::GREEDY.suppressing(&[3])), plain);
    assert_eq!(dispatches(Sampling { top_k: 40, top_p: 0.9, ..Sampling::new(0.8, 0) }), plain + 2);
}

/// A draw with all that can be on takes at most three dispatches more than the largest logit, whatever the vocabulary.
#[test]
fn every_filter_together_costs_three_dispatches_at_most() {
    if !common::has_adapter() {
        return;
    }
    let dispatches = |sampling: Sampling| {
        let model = MicroModel { vocab: 128_256, n_layers: 1, ..MicroModel::llama(QuantType::Q4_0) };
        let cost = counters_of(model, sampling, 2, 1);
        assert_eq!([cost.submits, cost.bytes_read, cost.buffers_created], [1, 2 * 4, 0], "{cost:?}");
        cost.dispatches / 2
    };
    let all = Sampling {
        top_k: 50,
        top_p: 0.9,
        min_p: 0.05,
        typical_p: 0.9,
        repeat_penalty: 1.1,
        presence_penalty: 0.5,
        biases: vec![(9, 1.0)],
        ..Sampling::new(0.8, 0)
    };
    assert!(dispatches(all.suppressing(&[3])) <= dispatches(Sampling::GREEDY) + 3);
}
