//! The promise: the cpu backend and the GPU give the same bits, however the prompt is chunked and the answer cut into bursts.

mod common;

use blueshift::engine::{BackendChoice, Engine, GenerateOptions, LoadOptions, Policy};
use blueshift::gguf::Source;
use blueshift::micro::{DeltaNet, MicroModel};
use blueshift::plan::KvType;
use blueshift::quant::QuantType;
use blueshift::sample::Sampling;
use common::some_ids;
use pollster::block_on;

fn load(source: Source, backend: BackendChoice) -> Engine {
    load_with(source, backend, KvType::F16)
}

fn load_with(source: Source, backend: BackendChoice, kv: KvType) -> Engine {
    block_on(Engine::load(source, LoadOptions { backend, gpu: common::gpu_for(backend), kv, ..Default::default() }))
        .expect("the model loads")
}

fn bits(logits: Vec<f32>) -> Vec<u32> {
    logits.into_iter().map(f32::to_bits).collect()
}

fn generate(engine: &mut Engine, prompt: &[u32], options: GenerateOptions) -> Vec<u32> {
    common::answer(engine, prompt, options).expect("valid options").ids
}

/// Compares everything the two engines can be asked.
fn compare(name: &str, cpu: &mut Engine, gpu: &mut Engine, ids: &[u32], max_tokens: usize) {
    let expected = bits(block_on(cpu.logits(ids, 0, true)).unwrap());
    assert!(expected.iter().all(|b| f32::from_bits(*b).is_finite()), "{name}: the logits are finite");
    for chunk in [1, 7, 64, 0] {
        for (which, engine) in [("cpu", &mut *cpu), ("wgpu", &mut *gpu)] {
            let found = bits(block_on(engine.logits(ids, chunk, true)).unwrap());
            let different = found.iter().zip(&expected).filter(|(a, b)| a != b).count();
            assert!(
                found.len() == expected.len() && different == 0,
                "{name}: {which}, chunk {chunk}: {different} logits differ"
            );
        }
    }
    for temperature in [0.0, 0.9] {
        let options = |burst| GenerateOptions {
            max_tokens,
            sampling: Sampling::new(temperature, 7),
            policy: Some(Policy::fixed(burst, 4)),
            ..Default::default()
        };
        let expected = generate(cpu, ids, options(1));
        for burst in [1, 5, 16] {
            assert_eq!(generate(cpu, ids, options(burst)), expected, "{name}: cpu, burst {burst}, T {temperature}");
            assert_eq!(generate(gpu, ids, options(burst)), expected, "{name}: wgpu, burst {burst}, T {temperature}");
        }
    }
}

fn compare_micro(name: &str, model: &MicroModel, n_ids: usize) {
    compare_caches(name, model, n_ids, KvType::F16);
}

fn compare_caches(name: &str, model: &MicroModel, n_ids: usize, kv: KvType) {
    let bytes = model.bytes();
    let mut cpu = load_with(Source::memory(name, bytes.clone()), BackendChoice::Cpu, kv);
    let mut gpu = load_with(Source::memory(name, bytes), BackendChoice::Gpu, kv);
    let ids = some_ids(n_ids, cpu.info().n_vocab);
    compare(name, &mut cpu, &mut gpu, &ids, 20);
}

#[test]
fn llama_of_every_type() {
    if !common::has_adapter() {
        return;
    }
    for kind in QuantType::ALL {
        // 70 tokens cross a page.
        compare_micro(&format!("llama {kind:?}"), &MicroModel::llama(kind), 70);
    }
}

#[test]
fn gemma3_of_every_type() {
    if !common::has_adapter() {
        return;
    }
    for kind in QuantType::ALL {
        // The window of 64 slides over two pages.
        let model = MicroModel { window: 64, ..MicroModel::gemma3(kind) };
        compare_micro(&format!("gemma3 {kind:?}"), &model, 135);
    }
}

#[test]
fn qwen3_of_every_type() {
    if !common::has_adapter() {
        return;
    }
    for kind in QuantType::ALL {
        compare_micro(&format!("qwen3 {kind:?}"), &MicroModel::qwen3(kind), 70);
    }
}

#[test]
fn qwen3moe_of_every_type() {
    if !common::has_adapter() {
        return;
    }
    for kind in QuantType::ALL {
        compare_micro(&format!("qwen3moe {kind:?}"), &MicroModel::qwen3moe(kind), 70);
    }
}

#[test]
fn odd_experts() {
    if !common::has_adapter() {
        return;
    }
    // More experts than a workgroup has lanes, of which a few are used; rows of three blocks.
    let many = MicroModel { ffn: 96, n_experts: 72, n_experts_used: 5, ..MicroModel::qwen3moe(QuantType::Q4_0) };
    compare_micro("5 of 72 experts", &many, 66);
    let all = MicroModel { n_experts: 3, ..MicroModel::qwen3moe(QuantType::Q5_1) };
    compare_micro("3 of 3 experts", &all, 9);
    let one = MicroModel { n_experts: 1, n_experts_used: 1, ..MicroModel::qwen3moe(QuantType::F16) };
    compare_micro("1 expert", &one, 9);
}

#[test]
fn qwen35_of_every_type() {
    if !common::has_adapter() {
        return;
    }
    for kind in QuantType::ALL {
        compare_micro(&format!("qwen35 {kind:?}"), &MicroModel::qwen35(kind), 70);
    }
}

#[test]
fn qwen3next_of_every_type() {
    if !common::has_adapter() {
        return;
    }
    for kind in QuantType::ALL {
        compare_micro(&format!("qwen3next {kind:?}"), &MicroModel::qwen3next(kind), 70);
    }
    compare_micro("qwen35moe", &MicroModel::qwen35moe(QuantType::Q4_0), 70);
}

#[test]
fn delta_nets_of_odd_shapes() {
    if !common::has_adapter() {
        return;
    }
    let base =
        MicroModel { n_layers: 2, d: 96, n_heads: 2, n_kv_heads: 1, ffn: 96, ..MicroModel::qwen35(QuantType::Q4_0) };
    let sizes = [
        // Three value heads a key head, heads that are no power of two, a convolution of two.
        DeltaNet { attention_every: 2, n_key_heads: 1, n_value_heads: 3, size: 96, kernel: 2 },
        // As many key heads as value heads; the widest heads, and a convolution longer than some chunks.
        DeltaNet { attention_every: 2, n_key_heads: 2, n_value_heads: 2, size: 256, kernel: 9 },
    ];
    for delta in sizes {
        compare_micro(&format!("{delta:?}"), &MicroModel { delta, ..base.clone() }, 70);
    }
}

#[test]
fn odd_shapes() {
    if !common::has_adapter() {
        return;
    }
    compare_micro("llama3, untied", &MicroModel::llama3(QuantType::Q4_0), 70);
    // 20 divisors of RoPE's frequencies.
    let heads_of_40 = MicroModel { n_heads: 8, head_dim: 40, ..MicroModel::llama3(QuantType::Q4_0) };
    compare_micro("llama3, heads of 40", &heads_of_40, 9);
    let odd =
        MicroModel { d: 576, n_heads: 9, n_kv_heads: 3, head_dim: 64, ffn: 1536, ..MicroModel::llama(QuantType::Q4_1) };
    compare_micro("576 wide, 9 heads over 3", &odd, 66);
    // 37 blocks a row: padded segments.
    let padded = MicroModel {
        d: 96,
        n_heads: 4,
        n_kv_heads: 1,
        head_dim: 40,
        ffn: 37 * 32,
        ..MicroModel::llama(QuantType::Q5_1)
    };
    compare_micro("96 wide, 1,184 in the middle", &padded, 9);
    let mixed = MicroModel { head_quant: QuantType::F16, ..MicroModel::llama(QuantType::Q8_0) };
    compare_micro("float head over quantised layers", &mixed, 9);
    // Heads of Qwen 3's width, five query heads a key head, an output matrix of its own.
    let wide = MicroModel {
        d: 160,
        n_heads: 10,
        n_kv_heads: 2,
        head_dim: 128,
        ffn: 416,
        tied: false,
        ..MicroModel::qwen3(QuantType::Q4_0)
    };
    compare_micro("160 wide, 10 heads of 128", &wide, 66);
    // Heads narrower than the hidden state's share, of a width that is no power of two.
    let narrow =
        MicroModel { d: 192, n_heads: 4, n_kv_heads: 4, head_dim: 24, ffn: 96, ..MicroModel::qwen3(QuantType::F16) };
    compare_micro("192 wide, 4 heads of 24", &narrow, 9);
}

#[test]
fn caches_of_q8_0() {
    if !common::has_adapter() {
        return;
    }
    for kind in [QuantType::F32, QuantType::Q4_0, QuantType::Q6_K] {
        compare_caches(&format!("llama {kind:?}"), &MicroModel::llama(kind), 70, KvType::Q8_0);
    }
    let windowed = MicroModel { window: 64, ..MicroModel::gemma3(QuantType::Q4_K) };
    compare_caches("gemma3", &windowed, 135, KvType::Q8_0);
    compare_caches("qwen3", &MicroModel::qwen3(QuantType::Q8_0), 70, KvType::Q8_0);
    // Three blocks a head; six query heads a key head.
    let odd = MicroModel { n_heads: 6, n_kv_heads: 1, head_dim: 96, ..MicroModel::llama(QuantType::Q4_1) };
    compare_caches("heads of 96", &odd, 66, KvType::Q8_0);
}

/// Settings that adjust and filter, penalties above all: a step must see what the steps before it in its burst drew.
#[test]
fn sampling_settings_in_bursts_of_any_length() {
    if !common::has_adapter() {
        return;
    }
    let bytes = MicroModel::llama(QuantType::Q4_0).bytes();
    let mut cpu = load(Source::memory("micro", bytes.clone()), BackendChoice::Cpu);
    let mut gpu = load(Source::memory("micro", bytes), BackendChoice::Gpu);
    let ids = some_ids(70, cpu.info().n_vocab);
    let base = Sampling::new(1.5, 11);
    let penalties = Sampling {
        repeat_penalty: 1.5,
        frequency_penalty: 0.5,
        presence_penalty: 0.3,
        penalty_window: 100,
        ..base.clone()
    };
    let options = |sampling: &Sampling, burst| GenerateOptions {
        max_tokens: 40,
        sampling: sampling.clone(),
        ignore_eos: true,
        policy: Some(Policy::fixed(burst, 4)),
        ..Default::default()
    };
    let plain = generate(&mut cpu, &ids, options(&base, 1));
    let settings = [
        Sampling { temperature: 0.0, ..penalties.clone() },
        // Draws from the last three tokens, and some others.
        Sampling { presence_penalty: -9.0, penalty_window: 3, ..base.clone() },
        penalties.clone(),
        Sampling { top_k: 20, top_p: 0.9, min_p: 0.02, ..penalties.clone() },
        Sampling { top_p: 0.8, ..base.clone() },
        // A suppressed token's bias does not count.
        Sampling { biases: vec![(plain[0], 30.0), (plain[1], -2.0)], ..base }.suppressing(&[plain[0], 9]),
    ];
    for (i, sampling) in settings.iter().enumerate() {
        let expected = generate(&mut cpu, &ids, options(sampling, 1));
        assert_ne!(expected, plain, "settings {i} change the answer");
        for burst in [1, 5, 16] {
            assert_eq!(
                generate(&mut cpu, &ids, options(sampling, burst)),
                expected,
                "cpu, burst {burst}, settings {i}"
            );
            assert_eq!(
                generate(&mut gpu, &ids, options(sampling, burst)),
                expected,
                "wgpu, burst {burst}, settings {i}"
            );
        }
        assert!(i != 5 || !expected.iter().any(|id| [plain[0], 9].contains(id)), "suppressed tokens are never drawn");
    }
}

#[test]
fn long_context_crosses_a_group_of_chunks() {
    if !common::has_adapter() {
        return;
    }
    let model = MicroModel {
        n_ctx: 2400,
        n_layers: 1,
        d: 64,
        n_heads: 2,
        n_kv_heads: 1,
        ffn: 64,
        ..MicroModel::llama(QuantType::Q8_0)
    };
    let bytes = model.bytes();
    let ids = some_ids(2100, 270);
    let mut logits = Vec::new();
    for backend in [BackendChoice::Cpu, BackendChoice::Gpu] {
        let mut engine = load(Source::memory("long", bytes.clone()), backend);
        for chunk in [0, 64] {
            logits.push(bits(block_on(engine.logits(&ids, chunk, false)).unwrap()));
        }
        let options = GenerateOptions { max_tokens: 12, policy: Some(Policy::fixed(5, 4)), ..Default::default() };
        logits.push(generate(&mut engine, &ids, options));
    }
    assert!(logits[1] == logits[0] && logits[3] == logits[0] && logits[4] == logits[0], "logits differ");
    assert_eq!(logits[2], logits[5], "ids differ");
}

#[test]
#[cfg_attr(on_cuda, ignore = "slow on the processor")]
fn smollm2() {
    let Some(path) = common::model("SmolLM2-135M-Instruct.Q4_1.gguf") else { return };
    if !common::has_adapter() {
        return;
    }
    let mut cpu = load(Source::file(&path).unwrap(), BackendChoice::Cpu);
    let mut gpu = load(Source::file(&path).unwrap(), BackendChoice::Gpu);
    let ids = cpu.raw_prompt("The capital of France is Paris, and the capital of Germany is Berlin. In 1867, the");
    compare("SmolLM2", &mut cpu, &mut gpu, &ids, 24);
}

#[test]
#[cfg_attr(on_cuda, ignore = "slow on the processor")]
fn gemma3_270m() {
    let Some(path) = common::model("gemma-3-270m-q4_k_m.gguf") else { return };
    if !common::has_adapter() {
        return;
    }
    let mut cpu = load(Source::file(&path).unwrap(), BackendChoice::Cpu);
    let mut gpu = load(Source::file(&path).unwrap(), BackendChoice::Gpu);
    let ids = cpu.raw_prompt("The capital of France is Paris");
    compare("Gemma 3", &mut cpu, &mut gpu, &ids, 16);
}
