//! What whole-program tests share; each uses a part of it.
#![allow(dead_code, unused_imports)]

#[cfg_attr(on_cuda, path = "../../native-cuda/tests/device/mod.rs")]
mod device;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use blueshift::engine::backend::WeightSink;
use blueshift::engine::{BackendChoice, Engine, Finish, GenerateOptions, LoadOptions};
use blueshift::gguf::{self, Source};
use blueshift::gpu::{Gpu, GpuBackend, GpuWeights};
use blueshift::model::Model;
use blueshift::model::load::{CancelToken, load_weights};
use blueshift::plan::{KvType, Plan};

pub(crate) use device::{gpu_for, has_adapter, open_gpu};

/// Says on the terminal, past the test runner's capture, that something is not tested here; under CI that is a failure.
pub(crate) fn ignored(reason: &str) {
    assert!(std::env::var_os("CI").is_none(), "{reason}");
    // A terminal that cannot be written to has nobody who would read it.
    let _ = writeln!(std::io::stderr(), "ignored: {reason}");
}

/// Folders that may hold models: `$BLUESHIFT_MODELS`, `models/`, the user's cache.
pub(crate) fn model_folders() -> Vec<PathBuf> {
    let set = std::env::var_os("BLUESHIFT_MODELS").map(PathBuf::from);
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("models");
    set.into_iter().chain([here]).chain(cache.or(home).map(|cache| cache.join("blueshift/models"))).collect()
}

/// The path of a model file. Where it is absent the test is to return early: a line says that it is ignored; under CI
/// an absent model is a failure.
pub(crate) fn model(name: &str) -> Option<PathBuf> {
    let found = model_folders().into_iter().map(|folder| folder.join(name)).find(|path| path.is_file());
    if found.is_none() {
        ignored(&format!("{name} is in none of {:?}", model_folders()));
    }
    found
}

/// A model on every backend there is, the CPU first.
pub(crate) fn engines(name: &str, bytes: &[u8], n_ctx: usize) -> Vec<Engine> {
    let choices = [BackendChoice::Cpu, BackendChoice::Gpu];
    let present = choices.into_iter().filter(|choice| *choice == BackendChoice::Cpu || has_adapter());
    let load = |backend| {
        let source = Source::memory(name, bytes.to_vec());
        let options = LoadOptions { backend, gpu: gpu_for(backend), n_ctx: Some(n_ctx), ..Default::default() };
        pollster::block_on(Engine::load(source, options)).expect("the model loads")
    };
    present.map(load).collect()
}

/// An answer as a whole.
pub(crate) struct Answer {
    pub(crate) ids: Vec<u32>,
    pub(crate) text: String,
    pub(crate) finish: Finish,
}

/// Generates to the end.
pub(crate) fn answer(engine: &mut Engine, prompt: &[u32], options: GenerateOptions) -> blueshift::Result<Answer> {
    let mut generation = engine.start(prompt, options)?;
    let (mut ids, mut text) = (Vec::new(), String::new());
    while let Some(piece) = pollster::block_on(engine.next(&mut generation))? {
        ids.extend(piece.ids);
        text.push_str(&piece.text);
    }
    Ok(Answer { ids, text, finish: generation.finish().expect("it has ended").clone() })
}

/// Ids that look random and are inside the vocabulary.
pub(crate) fn some_ids(n: usize, n_vocab: usize) -> Vec<u32> {
    (0..n as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) % n_vocab as u64) as u32).collect()
}

/// A GGUF file in which every value of an f32 tensor is `value`.
pub(crate) fn with_tensor_of(name: &str, value: f32, mut bytes: Vec<u8>) -> Vec<u8> {
    let file = pollster::block_on(gguf::open(Source::memory("micro", bytes.clone()))).expect("a GGUF file");
    let tensor = file.header.tensor(name).unwrap_or_else(|| panic!("{name} is in the file"));
    let start = tensor.offset as usize;
    let end = start + tensor.bytes as usize;
    for four in bytes[start..end].chunks_exact_mut(4) {
        four.copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

/// Loads a micro model's weights into `sink`; its plan with a cache of type `kv`.
pub(crate) fn load_micro(bytes: &[u8], kv: KvType, sink: &mut impl WeightSink) -> Arc<Plan> {
    pollster::block_on(async {
        let file = gguf::open(Source::memory("micro", bytes.to_vec())).await.expect("the micro model is valid");
        let model = Model::open(&file).await.expect("the micro model is valid");
        let loaded = load_weights(&file, &model.weights, sink, &mut |_| {}, &CancelToken::default()).await;
        loaded.expect("the weights load");
        Arc::new(model.plan.with_kv(kv).expect("heads of whole blocks"))
    })
}

/// A micro model on a device that is open already, with a cache of `n_ctx` positions.
pub(crate) async fn gpu_backend(gpu: &Gpu, bytes: Vec<u8>, n_ctx: usize) -> GpuBackend {
    let file = gguf::open(Source::memory("micro", bytes)).await.expect("the micro model is valid");
    let model = Model::open(&file).await.expect("the micro model is valid");
    let mut weights = GpuWeights::new(gpu);
    let loaded = load_weights(&file, &model.weights, &mut weights, &mut |_| {}, &CancelToken::default()).await;
    loaded.expect("the weights load");
    GpuBackend::new(gpu, Arc::new(model.plan), weights, n_ctx).await.expect("the backend fits")
}
