//! What a decoded token costs on the GPU with bursts in flight: one submit and one map a burst, four bytes a token, nothing created.

mod common;

use blueshift::engine::backend::Counters;
use blueshift::engine::{BackendChoice, Engine, GenerateOptions, LoadOptions};
use blueshift::gguf::Source;
use blueshift::micro::MicroModel;
use blueshift::quant::QuantType;
use pollster::block_on;

fn counters_of_bursts(temperature: f32, burst: usize, n_bursts: usize) -> Counters {
    let source = Source::memory("micro", MicroModel::llama(QuantType::Q4_0).bytes());
    let options = LoadOptions { backend: BackendChoice::Wgpu, ..Default::default() };
    let mut engine = block_on(Engine::load(source, options)).unwrap();
    let options = GenerateOptions { max_tokens: 1000, temperature, burst, ..Default::default() };
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

#[test]
fn a_burst_is_one_submit_one_map_and_four_bytes_a_token() {
    if !common::has_adapter() {
        return;
    }
    for (temperature, burst) in [(0.0, 1), (0.0, 8), (0.8, 8)] {
        let cost = counters_of_bursts(temperature, burst, 3);
        let case = format!("T {temperature}, burst {burst}: {cost:?}");
        assert_eq!(cost.submits, 3, "{case}");
        assert_eq!(cost.maps, 3, "{case}");
        assert_eq!(cost.bytes_read, 3 * burst as u64 * 4, "{case}");
        assert_eq!(cost.buffers_created, 0, "{case}");
        assert_eq!(cost.bind_groups_created, 0, "{case}");
        assert_eq!(cost.dispatches % (3 * burst as u64), 0, "{case}: the same dispatches for every token");
    }
}
