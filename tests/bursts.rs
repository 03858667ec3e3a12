//! `decode_burst(n)` is n single steps, bit for bit: on every backend, at every page edge, drawn in every way, with and without overlap,
//! batching of commands and the device's stop check.

mod common;

use blueshift::engine::backend::Readback;
use blueshift::engine::policy::{Flow, Guard, Reaction, StopCheck};
use blueshift::engine::{BackendChoice, Engine, GenerateOptions, LoadOptions, Policy};
use blueshift::gguf::Source;
use blueshift::micro::MicroModel;
use blueshift::quant::QuantType;
use blueshift::sample::Sampling;
use common::{answer, engines, some_ids};
use pollster::block_on;

const STEPS: usize = 70;

fn samplings() -> [Sampling; 3] {
    let filtered = Sampling { top_k: 40, top_p: 0.95, min_p: 0.01, repeat_penalty: 1.3, ..Sampling::new(1.2, 3) };
    [Sampling::GREEDY, Sampling::new(0.9, 7), filtered]
}

/// The ids of `steps` single steps after `prompt`.
fn single_steps(engine: &mut Engine, prompt: &[u32], steps: usize, sampling: &Sampling) -> Vec<u32> {
    let (last, before) = prompt.split_last().expect("a prompt");
    feed(engine, before);
    let mut token = *last;
    let mut step = || {
        token = block_on(engine.decode_step(token, sampling)).expect("a step");
        token
    };
    (0..steps).map(|_| step()).collect()
}

fn feed(engine: &mut Engine, tokens: &[u32]) {
    engine.clear();
    for token in tokens {
        block_on(engine.advance_with_token(*token)).expect("it fits");
    }
}

/// The same in bursts of `n`.
fn bursts(engine: &mut Engine, prompt: &[u32], steps: usize, n: usize, sampling: &Sampling) -> Vec<u32> {
    let (last, before) = prompt.split_last().expect("a prompt");
    engine.clear();
    if !before.is_empty() {
        block_on(engine.logits(before, 0, false)).expect("it fits");
    }
    let (mut ids, mut token) = (Vec::new(), *last);
    while ids.len() < steps {
        let drawn = block_on(engine.decode_burst(token, n.min(steps - ids.len()), sampling, &[])).expect("a burst");
        assert_eq!(drawn.end, None);
        ids.extend(drawn.ids);
        token = ids[ids.len() - 1];
    }
    ids
}

fn compare(name: &str, model: &MicroModel, n_prompt: usize) {
    let mut all = engines(name, &model.bytes(), n_prompt + STEPS);
    let prompt = some_ids(n_prompt, all[0].info().n_vocab);
    for sampling in samplings() {
        let expected = single_steps(&mut all[0], &prompt, STEPS, &sampling);
        for engine in &mut all {
            for n in [1, 2, 5, 16, 64] {
                let found = bursts(engine, &prompt, STEPS, n, &sampling);
                assert_eq!(found, expected, "{name}: {}, bursts of {n}, {sampling:?}", engine.info().backend);
            }
        }
    }
}

#[test]
fn bursts_are_single_steps_across_pages() {
    // 60 + 70 tokens cross two page edges.
    compare("llama", &MicroModel::llama3(QuantType::Q4_0), 60);
    compare("gemma3", &MicroModel { window: 64, ..MicroModel::gemma3(QuantType::Q4_K) }, 60);
}

#[test]
fn bursts_are_single_steps_across_groups_of_chunks() {
    let narrow = MicroModel {
        n_ctx: 2400,
        n_layers: 1,
        d: 64,
        n_heads: 2,
        n_kv_heads: 1,
        ffn: 64,
        ..MicroModel::llama(QuantType::Q8_0)
    };
    let mut all = engines("long", &narrow.bytes(), 2100);
    // The 32 chunks of a group end at position 2048.
    let prompt = some_ids(2040, all[0].info().n_vocab);
    let expected = bursts(&mut all[0], &prompt, 24, 1, &Sampling::new(0.9, 7));
    for engine in &mut all {
        for n in [2, 5, 16] {
            assert_eq!(bursts(engine, &prompt, 24, n, &Sampling::new(0.9, 7)), expected, "bursts of {n}");
        }
    }
}

/// Everything about a policy that must not show in the tokens.
fn policies() -> Vec<Policy> {
    let mut all = vec![Policy::default()];
    for (burst, in_flight) in [(1, 1), (1, 4), (2, 1), (5, 3), (16, 2), (64, 4)] {
        all.push(Policy::fixed(burst, in_flight));
        all.push(Policy { batch_commands: false, ..Policy::fixed(burst, in_flight) });
    }
    all.push(Policy { stop_check: StopCheck::PerBurst, ..Policy::fixed(16, 4) });
    all.push(Policy { guard: None, ..Policy::fixed(5, 4) });
    let reaction = Reaction::Widen { window: 3 };
    all.push(Policy { guard: Some(Guard { limit: 1e30, reaction }), ..Policy::default() });
    all.push(Policy { flow: Flow::Adaptive { latency_ms: 1.0 }, ..Policy::default() });
    all
}

#[test]
fn no_policy_changes_a_token() {
    let model = MicroModel::llama3(QuantType::Q5_0);
    let mut all = engines("llama", &model.bytes(), 130);
    let prompt = some_ids(60, all[0].info().n_vocab);
    for sampling in samplings() {
        let options = |policy| GenerateOptions {
            max_tokens: STEPS,
            sampling: sampling.clone(),
            ignore_eos: true,
            policy: Some(policy),
            ..Default::default()
        };
        let expected = answer(&mut all[0], &prompt, options(Policy::fixed(1, 1))).unwrap().ids;
        assert_eq!(expected.len(), STEPS);
        for engine in &mut all {
            for policy in policies() {
                let found = answer(engine, &prompt, options(policy)).unwrap().ids;
                assert_eq!(found, expected, "{}, {policy:?}, {sampling:?}", engine.info().backend);
            }
        }
    }
}

/// The real model on the CPU and on the GPU.
fn smollm2() -> Option<[Engine; 2]> {
    let path = common::model("SmolLM2-135M-Instruct.Q4_1.gguf").filter(|_| common::has_adapter())?;
    let load = |backend| {
        let source = Source::file(&path).expect("the file opens");
        block_on(Engine::load(source, LoadOptions { backend, n_ctx: Some(128), ..Default::default() })).unwrap()
    };
    Some([BackendChoice::Cpu, BackendChoice::Gpu].map(load))
}

#[test]
fn smollm2_in_bursts() {
    let Some([mut cpu, mut gpu]) = smollm2() else { return };
    let prompt = cpu.raw_prompt("The capital of France is");
    let drawn = Sampling { top_k: 40, typical_p: 0.9, ..Sampling::new(0.8, 5) };
    // 5 + 64 tokens cross a page edge.
    for (sampling, steps, lengths) in [(Sampling::GREEDY, 64, &[1, 2, 5, 16, 64][..]), (drawn, 21, &[5, 16])] {
        let expected = single_steps(&mut cpu, &prompt, steps, &sampling);
        for n in lengths {
            assert_eq!(bursts(&mut gpu, &prompt, steps, *n, &sampling), expected, "bursts of {n}");
            assert_eq!(bursts(&mut cpu, &prompt, steps, *n, &sampling), expected, "bursts of {n} on the cpu");
        }
        let options = |policy| GenerateOptions {
            max_tokens: 21,
            sampling: sampling.clone(),
            ignore_eos: true,
            policy: Some(policy),
            ..Default::default()
        };
        // In one submit an operation.
        let split = Policy { batch_commands: false, ..Policy::fixed(2, 1) };
        assert_eq!(answer(&mut gpu, &prompt, options(split)).unwrap().ids, expected[..21]);
        // In flight one behind the other: one submit and one map a burst, four bytes a token, and nothing else is read.
        gpu.restrict_readbacks(Some(vec![Readback::Tokens]));
        let before = gpu.counters();
        let found = answer(&mut gpu, &prompt, options(Policy::fixed(4, 4))).unwrap();
        let cost = gpu.counters() - before;
        gpu.restrict_readbacks(None);
        assert_eq!(found.ids, expected[..21]);
        // The first token, and five bursts of four; two submits for the prompt's last token.
        assert_eq!((cost.maps, cost.bytes_read, cost.submits), (6, 4 * 21, 8), "{cost:?}");
    }
}
