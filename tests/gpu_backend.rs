//! The wgpu backend gives the cpu backend's bits: logits and drawn tokens, whatever the chunks and bursts.

use std::sync::Arc;

use blueshift::cpu::backend::{CpuBackend, CpuWeights};
use blueshift::engine::backend::{Backend, Burst, First, WeightSink};
use blueshift::gguf::{self, GgufFile, Source};
use blueshift::gpu::{Gpu, GpuBackend, GpuWeights};
use blueshift::micro::MicroModel;
use blueshift::model::Model;
use blueshift::model::load::{CancelToken, load_weights};
use blueshift::quant::QuantType;
use blueshift::sample::Sampling;
use blueshift::{Error, Result};

const DRAWN: Sampling = Sampling { temperature: 0.8, seed: 42 };

/// The device, or `None` where there is none.
fn device() -> Option<Gpu> {
    pollster::block_on(Gpu::open(None)).ok()
}

async fn load(file: &GgufFile, sink: &mut impl WeightSink) -> Result<Model> {
    let model = Model::open(file).await?;
    load_weights(file, &model.weights, sink, &mut |_| {}, &CancelToken::default()).await?;
    Ok(model)
}

async fn cpu(file: &GgufFile, n_ctx: usize) -> Result<CpuBackend> {
    let mut weights = CpuWeights::default();
    let model = load(file, &mut weights).await?;
    Ok(CpuBackend::new(Arc::new(model.plan), weights, n_ctx))
}

async fn wgpu(gpu: &Gpu, file: &GgufFile, n_ctx: usize) -> Result<GpuBackend> {
    let mut weights = GpuWeights::new(gpu);
    let model = load(file, &mut weights).await?;
    GpuBackend::new(gpu, Arc::new(model.plan), weights, n_ctx).await
}

/// Prefills `prompt` in chunks, then draws tokens in bursts: bits of logits, then ids.
async fn answer(backend: &mut impl Backend, prompt: &[u32], chunk: usize, bursts: &[usize]) -> Result<Vec<u32>> {
    let mut position = 0;
    for tokens in prompt.chunks(chunk.min(backend.max_chunk())) {
        backend.feed(tokens, position).await?;
        position += tokens.len();
        if position == prompt.len() {
            backend.head(tokens.len() - 1).await?;
        }
    }
    let mut words: Vec<u32> = backend.read_logits().await?.iter().map(|x| x.to_bits()).collect();
    let mut first = First::FromLogits;
    for (i, &steps) in bursts.iter().enumerate() {
        let sampling = if i % 2 == 0 { Sampling::GREEDY } else { DRAWN };
        words.extend(backend.burst(Burst { first, position, steps, sampling, stop_ids: &[] }).await?);
        position += steps - usize::from(first == First::FromLogits);
        first = First::FromState;
    }
    words.extend(backend.read_logits().await?.iter().map(|x| x.to_bits()));
    Ok(words)
}

#[test]
fn micro_models_agree() {
    let Some(gpu) = device() else { return };
    pollster::block_on(async {
        let mut failures = Vec::new();
        for kind in QuantType::ALL {
            for micro in [MicroModel::llama(kind), MicroModel::gemma3(kind)] {
                let file = gguf::open(Source::memory("micro", micro.bytes())).await.unwrap();
                let prompt: Vec<u32> = (0..70).map(|i| i * 53 % 256).collect();
                let want = answer(&mut cpu(&file, 128).await.unwrap(), &prompt, 64, &[3, 3]).await.unwrap();
                // a whole page and a rest; chunks that end inside tiles and pages; the decode instance alone
                for chunk in [64, 7, 1] {
                    let mut backend = wgpu(&gpu, &file, 128).await.unwrap();
                    let found = answer(&mut backend, &prompt, chunk, &[3, 3]).await.unwrap();
                    if found != want {
                        let first = found.iter().zip(&want).position(|(a, b)| a != b);
                        failures.push(format!("{kind:?} {:?} chunks of {chunk}: word {first:?}", micro.arch));
                    }
                }
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    });
}

/// A fused burst costs one submit, one map and four bytes a token, and creates nothing.
#[test]
fn bursts_cost_what_they_should() {
    let Some(gpu) = device() else { return };
    pollster::block_on(async {
        let micro = MicroModel::llama(QuantType::Q4_0);
        let file = gguf::open(Source::memory("micro", micro.bytes())).await.unwrap();
        let mut backend = wgpu(&gpu, &file, 128).await.unwrap();
        backend.feed(&[1, 2, 3], 0).await.unwrap();
        backend.head(2).await.unwrap();
        let before = backend.counters();
        let burst = Burst { first: First::FromLogits, position: 3, steps: 5, sampling: DRAWN, stop_ids: &[] };
        assert_eq!(backend.burst(burst).await.unwrap().len(), 5);
        let after = backend.counters();
        assert_eq!(after.submits - before.submits, 1);
        assert_eq!(after.maps - before.maps, 1);
        assert_eq!(after.bytes_read - before.bytes_read, 20);
        assert_eq!(after.buffers_created, before.buffers_created);
        assert_eq!(after.bind_groups_created, before.bind_groups_created);
    });
}

/// What cannot be done is an error that says so, and leaves the backend usable.
#[test]
fn bad_requests_are_errors() {
    let Some(gpu) = device() else { return };
    pollster::block_on(async {
        let micro = MicroModel::llama(QuantType::Q4_0);
        let file = gguf::open(Source::memory("micro", micro.bytes())).await.unwrap();
        let mut backend = wgpu(&gpu, &file, 64).await.unwrap();
        assert!(matches!(backend.feed(&[u32::MAX], 0).await, Err(Error::BadToken { .. })));
        assert!(matches!(backend.feed(&[1, 2], 63).await, Err(Error::ContextFull { needed: 65, limit: 64 })));
        assert!(matches!(backend.feed(&[], 0).await, Err(Error::BadOption { .. })));
        assert!(matches!(backend.head(1).await, Err(Error::BadOption { .. })));
        backend.feed(&[1, 2], 62).await.unwrap();
        backend.head(1).await.unwrap();
        let burst = |first, steps| Burst { first, position: 64, steps, sampling: DRAWN, stop_ids: &[] };
        assert!(matches!(backend.burst(burst(First::Token(1), 1)).await, Err(Error::ContextFull { .. })));
        assert_eq!(backend.burst(burst(First::FromLogits, 1)).await.unwrap().len(), 1);
    });
}
