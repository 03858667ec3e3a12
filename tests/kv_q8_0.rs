//! A cache of type q8_0: how far its logits are from those of f16, and what its pages hold.

mod common;

use blueshift::Error;
use blueshift::cpu::backend::{CpuBackend, CpuWeights};
use blueshift::engine::backend::Backend;
use blueshift::engine::{BackendChoice, Engine, LoadOptions};
use blueshift::gguf::Source;
use blueshift::gpu::{Gpu, GpuBackend, GpuWeights, ShaderPatch};
use blueshift::micro::MicroModel;
use blueshift::plan::{KvShape, KvType, PAGE};
use blueshift::quant::QuantType;
use common::{load_micro, some_ids};
use pollster::block_on;

const N_CTX: usize = 128;
const N_IDS: usize = 130;

fn on_cpu(micro: &[u8], kv: KvType) -> CpuBackend {
    let mut weights = CpuWeights::default();
    let plan = load_micro(micro, kv, &mut weights);
    CpuBackend::new(plan, weights, N_CTX).unwrap()
}

fn on_gpu(gpu: &Gpu, micro: &[u8], kv: KvType) -> GpuBackend {
    let mut weights = GpuWeights::new(gpu);
    let plan = load_micro(micro, kv, &mut weights);
    block_on(GpuBackend::new(gpu, plan, weights, N_CTX)).unwrap()
}

/// Logits of every row, on the CPU.
fn logits(name: &str, bytes: &[u8], kv: KvType) -> Vec<f32> {
    let options = LoadOptions { backend: BackendChoice::Cpu, kv, ..Default::default() };
    let mut engine = block_on(Engine::load(Source::memory(name, bytes.to_vec()), options)).expect("the model loads");
    let ids = some_ids(N_IDS, engine.info().n_vocab);
    block_on(engine.logits(&ids, 0, true)).unwrap()
}

/// Normalised mean squared error of q8_0 to f16, rows of `n_vocab` logits without their means.
fn nmse(found: &[f32], wanted: &[f32], n_vocab: usize) -> f64 {
    let (mut error, mut norm) = (0.0, 0.0);
    for (a, b) in found.chunks_exact(n_vocab).zip(wanted.chunks_exact(n_vocab)) {
        let mean = |x: &[f32]| x.iter().map(|x| f64::from(*x)).sum::<f64>() / n_vocab as f64;
        let (mean_a, mean_b) = (mean(a), mean(b));
        for (a, b) in a.iter().zip(b) {
            let (a, b) = (f64::from(*a) - mean_a, f64::from(*b) - mean_b);
            error += (a - b) * (a - b);
            norm += b * b;
        }
    }
    error / norm
}

/// Models of f32 weights, which round no activations: what differs is the cache's.
#[test]
fn logits_of_micro_models_are_close_to_those_of_f16() {
    for (name, model) in [
        ("llama", MicroModel::llama(QuantType::F32)),
        ("gemma3", MicroModel::gemma3(QuantType::F32)),
        ("qwen3", MicroModel::qwen3(QuantType::F32)),
    ] {
        let bytes = model.bytes();
        let [q8_0, f16] = [KvType::Q8_0, KvType::F16].map(|kv| logits(name, &bytes, kv));
        let error = nmse(&q8_0, &f16, q8_0.len() / N_IDS);
        assert!(error > 0.0 && error < 1.5e-4, "{name}: {error:e}");
    }
}

#[test]
fn heads_that_are_no_whole_blocks_are_refused() {
    let bytes = MicroModel { n_heads: 8, head_dim: 40, ..MicroModel::llama3(QuantType::Q4_0) }.bytes();
    for (kv, refused) in [(KvType::F16, false), (KvType::Q8_0, true)] {
        let options = LoadOptions { backend: BackendChoice::Cpu, kv, ..Default::default() };
        match block_on(Engine::load(Source::memory("micro", bytes.clone()), options)) {
            Err(Error::BadOption { option: "cache type", found, .. }) if refused => {
                assert_eq!(found, "q8_0 for heads of 40 values");
            }
            other => assert!(other.is_ok() && !refused, "{kv:?}"),
        }
    }
}

/// A page's bytes after two sequences, one over the other.
fn rewritten(backend: &mut impl Backend) -> Vec<u8> {
    for shift in [0, 9] {
        let ids: Vec<u32> = some_ids(PAGE + 7, 256).into_iter().map(|id| (id + shift) % 256).collect();
        block_on(backend.feed(0, &ids[..33], 0)).unwrap();
        block_on(backend.feed(0, &ids[33..34], 33)).unwrap();
        block_on(backend.feed(0, &ids[34..], 34)).unwrap();
    }
    block_on(backend.read_page(0)).unwrap()
}

#[test]
fn positions_are_written_again() {
    let micro = MicroModel::llama(QuantType::Q4_0).bytes();
    let wanted = rewritten(&mut on_cpu(&micro, KvType::Q8_0));
    let f16 = rewritten(&mut on_cpu(&micro, KvType::F16));
    assert_eq!(wanted.len() * 64, f16.len() * 34);
    if !common::has_adapter() {
        return;
    }
    let gpu = common::open_gpu();
    assert!(rewritten(&mut on_gpu(&gpu, &micro, KvType::Q8_0)) == wanted);
    if cfg!(on_cuda) {
        return;
    }
    // The canary: scales of before are not cleared.
    let (from, to) = ("atomicAnd(&keys[word], 0xffff0000u >> shift);", "");
    let gpu = block_on(Gpu::open_patched(ShaderPatch { stem: "rope_append", from, to })).unwrap();
    assert!(rewritten(&mut on_gpu(&gpu, &micro, KvType::Q8_0)) != wanted);
}

/// A block that holds a NaN, in a layer's keys or values: the guard sees what follows from it.
fn with_nan(backend: &mut impl Backend, shape: KvShape, side: usize) {
    let ids = some_ids(20, 256);
    block_on(backend.feed(0, &ids[..19], 0)).unwrap();
    assert_eq!(block_on(backend.take_trip(0)).unwrap(), None);
    let mut page = block_on(backend.read_page(0)).unwrap();
    // The last of the scales is a later position's; this one is the first head's at position 4.
    let at = side * shape.page_bytes() + shape.page_len() + 4 * 2;
    page[at..at + 2].copy_from_slice(&0x7e00u16.to_le_bytes());
    backend.write_page(0, &page).unwrap();
    block_on(backend.feed(0, &ids[19..], 19)).unwrap();
    block_on(backend.head(0, 0)).unwrap();
    let trip = block_on(backend.take_trip(0)).unwrap().expect("it is seen");
    assert_eq!((trip.layer, trip.not_finite), (Some(0), true), "side {side}");
}

#[test]
fn a_block_that_is_not_a_number_stays_visible() {
    let micro = MicroModel::llama(QuantType::Q4_0);
    let shape = KvShape { n_kv_heads: micro.n_kv_heads, head_dim: micro.head_dim, kv: KvType::Q8_0 };
    for side in [0, 1] {
        with_nan(&mut on_cpu(&micro.bytes(), KvType::Q8_0), shape, side);
        if common::has_adapter() {
            let gpu = common::open_gpu();
            with_nan(&mut on_gpu(&gpu, &micro.bytes(), KvType::Q8_0), shape, side);
        }
    }
}
