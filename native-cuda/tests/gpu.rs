//! What needs an NVIDIA GPU: `cargo test -p blueshift-native-cuda -- --include-ignored`. With `BLUESHIFT_CUDA_TESTS=gpu` the root crate's
//! tests run on it, too.

mod checking;

use std::sync::{Mutex, MutexGuard};

use blueshift::engine::{BackendChoice, Engine, GenerateOptions, LoadOptions, Policy};
use blueshift::gguf::Source;
use blueshift::gpu::Gpu;
use blueshift::gpu::cases::{run_case_tables, run_random_settings};
use blueshift::gpu::driver::{Driver, Usage};
use blueshift::micro::MicroModel;
use blueshift::quant::QuantType;
use blueshift::sample::Sampling;
use blueshift_native_cuda::{CompileOptions, CudaDriver, Device, open};
use checking::check;
use pollster::block_on;

/// Held by a test as long as it runs: what is free on the device is one test's matter at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|e| e.into_inner())
}

fn engine(model: &MicroModel, gpu: Option<Gpu>) -> Engine {
    let backend = if gpu.is_some() { BackendChoice::Gpu } else { BackendChoice::Cpu };
    let load = LoadOptions { backend, gpu, n_ctx: Some(256), ..Default::default() };
    block_on(Engine::load(Source::memory("micro", model.bytes()), load)).expect("the model loads")
}

/// Ids drawn in bursts, several of them in flight.
fn ids(engine: &mut Engine) -> Vec<u32> {
    let policy = Some(Policy::fixed(8, 4));
    let sampling = Sampling { top_k: 40, ..Sampling::new(0.9, 3) };
    let options = GenerateOptions { max_tokens: 120, sampling, policy, ignore_eos: true, ..Default::default() };
    let mut generation = engine.start(&[1, 2, 3, 4, 5], options).expect("valid options");
    let mut ids = Vec::new();
    while let Some(piece) = block_on(engine.next(&mut generation)).expect("it computes") {
        ids.extend(piece.ids);
    }
    ids
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn kernels_give_the_twins_bits() {
    let _alone = alone();
    let gpu = open(None).unwrap();
    check(&block_on(run_case_tables(&gpu)).expect("the device runs every case"));
    let table = [(2, 200), (128, 4000), (1000, 3000), (4099, 2800), (151_936, 11), (262_144, 33)];
    let mut results = Vec::new();
    block_on(run_random_settings(&gpu, &table, &mut results)).expect("the device runs every case");
    check(&results);
}

/// Models come and go, with their kernels, graphs, streams and buffers, while the GPU stays open.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn what_is_dropped_is_freed() {
    let _alone = alone();
    let device = Device::open(0).unwrap();
    let mut after_first = None;
    for round in 0..20 {
        let gpu = Gpu::new(CudaDriver::new(&device, &CompileOptions::default()).unwrap());
        let mut engine = engine(&MicroModel::llama(QuantType::Q4_0), Some(gpu));
        assert_eq!(ids(&mut engine).len(), 120);
        drop(engine);
        let free = device.free_bytes().unwrap();
        // The first round leaves what the driver keeps for kernels to come.
        let wanted = *after_first.get_or_insert(free);
        assert!(free >= wanted, "round {round}: {free} bytes are free, there were {wanted}");
    }
}

/// Two models on one device, one of them with a driver of its own, answer in turn what they answer alone.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn models_share_a_gpu() {
    let _alone = alone();
    let models = [MicroModel::llama(QuantType::Q4_0), MicroModel::qwen35(QuantType::Q4_1)];
    let wanted: Vec<_> = models.iter().map(|model| ids(&mut engine(model, None))).collect();
    let shared = open(None).unwrap();
    let gpus = [(0, shared.clone()), (1, shared), (0, open(None).unwrap())];
    let mut engines: Vec<_> = gpus.iter().map(|(i, gpu)| (*i, engine(&models[*i], Some(gpu.clone())))).collect();
    for _ in 0..2 {
        for (i, engine) in &mut engines {
            assert_eq!(ids(engine), wanted[*i]);
            engine.clear();
        }
    }
    drop(engines);
    std::thread::scope(|scope| {
        for (i, gpu) in gpus {
            let (model, wanted) = (&models[i], &wanted[i]);
            scope.spawn(move || assert_eq!(&ids(&mut engine(model, Some(gpu))), wanted, "in a thread of its own"));
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn too_large_a_buffer_is_refused_with_what_is_free() {
    let _alone = alone();
    let device = Device::open(0).unwrap();
    let driver = CudaDriver::new(&device, &CompileOptions::default()).unwrap();
    let (buffer, refused) = driver.buffer("everything", device.total_bytes() * 2, Usage::Storage);
    let reason = block_on(refused).expect("it is refused");
    assert!(reason.contains("bytes are free"), "{reason}");
    // It stays usable, and so does what was refused.
    driver.write(&buffer, 0, &[0; 4]);
    drop(buffer);
    assert_eq!(driver.failure(), None);
    let (_buffer, refused) = driver.buffer("a little", 1 << 20, Usage::Storage);
    assert_eq!(block_on(refused), None);
}
