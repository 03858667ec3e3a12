//! What a decoded token costs on the GPU with bursts in flight: one submit and one map a burst, four bytes a token, nothing created.

mod common;

use blueshift::engine::backend::Counters;
use blueshift::engine::{BackendChoice, Engine, GenerateOptions, LoadOptions};
use blueshift::gguf::Source;
use blueshift::micro::MicroModel;
use blueshift::quant::QuantType;
use pollster::block_on;

fn counters_of_bursts(options: GenerateOptions, n_bursts: usize) -> Counters {
    counters_of(MicroModel::llama(QuantType::Q4_0), options, n_bursts)
}

fn counters_of(model: MicroModel, options: GenerateOptions, n_bursts: usize) -> Counters {
    let burst = options.burst;
    let source = Source::memory("micro", model.bytes());
    let load = LoadOptions { backend: BackendChoice::Wgpu, ..Default::default() };
    let mut engine = block_on(Engine::load(source, load)).unwrap();
    let mut generation = engine.start(&[1, 2, 3], options).unwrap();
    // The first token and a warm-up burst.
    for _ in 0..2 {
        block_on(engine.next(&mut generation)).unwrap();
    }
    let before = engine.counters();
    for _ in 0..n_bursts {
        let piece = block_on(engine.next(&mut generation)).unwrap().unwrap();
        assert_eq!(piece.ids.len(), burst, "the micro model drew a stop token: choose another seed");
    }
    engine.counters() - before
}

fn options(temperature: f32, burst: usize) -> GenerateOptions {
    GenerateOptions { max_tokens: 1000, temperature, burst, ..Default::default() }
}

#[test]
fn a_burst_is_one_submit_one_map_and_four_bytes_a_token() {
    if !common::has_adapter() {
        return;
    }
    for (temperature, burst) in [(0.0, 1), (0.0, 8), (0.8, 8)] {
        let cost = counters_of_bursts(options(temperature, burst), 3);
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
    let dispatches = |options: GenerateOptions| {
        let cost = counters_of_bursts(GenerateOptions { ignore_eos: true, ..options }, 3);
        assert_eq!([cost.submits, cost.maps, cost.bytes_read], [3, 3, 3 * 8 * 4], "{cost:?}");
        assert_eq!([cost.buffers_created, cost.bind_groups_created], [0, 0], "{cost:?}");
        cost.dispatches / 24
    };
    let plain = dispatches(options(0.8, 8));
    assert_eq!(dispatches(GenerateOptions { repeat_penalty: 1.1, ..options(0.8, 8) }), plain);
    assert_eq!(dispatches(GenerateOptions { suppress: vec![3], ..options(0.0, 8) }), plain);
    assert_eq!(dispatches(GenerateOptions { top_k: 40, top_p: 0.9, ..options(0.8, 8) }), plain + 2);
}

/// A draw with all that can be on takes at most three dispatches more than the largest logit, whatever the vocabulary.
#[test]
fn every_filter_together_costs_three_dispatches_at_most() {
    if !common::has_adapter() {
        return;
    }
    let dispatches = |options: GenerateOptions| {
        let model = MicroModel { vocab: 128_256, n_layers: 1, ..MicroModel::llama(QuantType::Q4_0) };
        let cost = counters_of(model, GenerateOptions { ignore_eos: true, ..options }, 1);
        assert_eq!([cost.submits, cost.bytes_read, cost.buffers_created], [1, 2 * 4, 0], "{cost:?}");
        cost.dispatches / 2
    };
    let all = GenerateOptions {
        top_k: 50,
        top_p: 0.9,
        min_p: 0.05,
        repeat_penalty: 1.1,
        presence_penalty: 0.5,
        logit_bias: vec![(9, 1.0)],
        suppress: vec![3],
        ..options(0.8, 2)
    };
    assert!(dispatches(all) <= dispatches(options(0.0, 2)) + 3);
}
