//! Many sequences on one engine give each what it would get alone, bit for bit, whoever joins and leaves.

mod common;
mod scheduling;

use blueshift::engine::BackendChoice;
use scheduling::{Tally, engine_storing, models, run_schedule};

/// Schedules of each architecture on the CPU.
const N: u64 = 30;

fn schedules(name: &str) {
    let (name, model, kv) = models().into_iter().find(|(other, ..)| *other == name).expect("a known model");
    let bytes = model.bytes();
    let mut reference = engine_storing(kv, BackendChoice::Cpu, &bytes, 224, 1, None);
    let mut tally = Tally::default();
    for seed in 0..N {
        run_schedule(name, kv, BackendChoice::Cpu, &bytes, &mut reference, seed, &mut tally);
    }
    assert!(tally.completions > 180 && tally.cancelled > 10, "{tally:?}");
    assert!(tally.preemptions > 3 && tally.evictions > 40, "{tally:?}");
    // Recurrent layers go on from whole pages with a saved state.
    let is_recurrent = ["qwen35", "qwen3next"].contains(&name);
    assert_eq!(tally.copies > 50, !is_recurrent, "{tally:?}");
    assert!(tally.found > if is_recurrent { 1_000 } else { 5_000 }, "{tally:?}");
    assert!(tally.most_rows >= 6);
}

#[test]
fn on_a_gpu() {
    if !common::has_adapter() {
        return;
    }
    let mut tally = Tally::default();
    // One schedule preempts, the other one has many rows.
    for ((name, model, kv), seed) in models().into_iter().zip([35, 47].into_iter().cycle()) {
        let bytes = model.bytes();
        let mut reference = engine_storing(kv, BackendChoice::Cpu, &bytes, 224, 1, None);
        run_schedule(name, kv, BackendChoice::Gpu, &bytes, &mut reference, seed, &mut tally);
    }
    assert!(tally.completions > 40 && tally.preemptions > 3 && tally.most_rows >= 7, "{tally:?}");
}

#[test]
fn llama() {
    schedules("llama");
}

#[test]
fn llama_with_a_q8_0_cache() {
    schedules("llama, q8_0 cache");
}

#[test]
fn gemma3() {
    schedules("gemma3");
}

#[test]
fn qwen3() {
    schedules("qwen3");
}

#[test]
fn qwen3moe() {
    schedules("qwen3moe");
}

#[test]
fn qwen35() {
    schedules("qwen35");
}

#[test]
fn qwen3next() {
    schedules("qwen3next");
}
