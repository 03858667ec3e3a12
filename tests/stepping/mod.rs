//! Backends with several sequences, and what they are asked.
#![allow(dead_code)]

use blueshift::cpu::backend::{CpuBackend, CpuWeights};
use blueshift::engine::backend::{Backend, Burst, Capacity, Execution, First, Row};
use blueshift::gpu::{Gpu, GpuBackend, GpuWeights};
use blueshift::micro::MicroModel;
use blueshift::plan::{KvType, PAGE};
use blueshift::quant::QuantType;
use blueshift::sample::Sampling;
use pollster::block_on;

use crate::common::{load_micro, some_ids};

pub(crate) const N_CTX: usize = 256;

/// What a sequence is asked.
#[derive(Clone)]
pub(crate) struct Ask {
    pub(crate) prompt: Vec<u32>,
    pub(crate) sampling: Sampling,
    pub(crate) steps: usize,
}

/// What it gave.
#[derive(Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) ids: Vec<u32>,
    pub(crate) logits: Vec<u32>,
}

pub(crate) fn asks() -> Vec<Ask> {
    let filtered = Sampling { top_k: 20, top_p: 0.9, ..Sampling::new(1.2, 5) };
    let penalties = Sampling { repeat_penalty: 1.3, presence_penalty: 0.4, ..Sampling::new(0.9, 9) };
    let samplings = [Sampling::GREEDY, Sampling::new(0.8, 42), filtered, penalties];
    // Lengths around pages and chunks.
    let lengths = [3, 64, 65, 1, 127, 130, 40, 63, 9];
    let ask = |(i, n): (usize, &usize)| Ask {
        prompt: some_ids(*n + i, 256)[i..].to_vec(),
        sampling: samplings[i % samplings.len()].clone(),
        steps: 12,
    };
    lengths.iter().enumerate().map(ask).collect()
}

pub(crate) fn on_cpu(micro: &[u8], kv: KvType, capacity: Capacity) -> CpuBackend {
    let mut weights = CpuWeights::default();
    let plan = load_micro(micro, kv, &mut weights);
    CpuBackend::new(plan, weights, capacity).unwrap()
}

pub(crate) fn on_gpu(gpu: &Gpu, micro: &[u8], kv: KvType, capacity: Capacity) -> GpuBackend {
    let mut weights = GpuWeights::new(gpu);
    let plan = load_micro(micro, kv, &mut weights);
    block_on(GpuBackend::new(gpu, plan, weights, capacity)).unwrap()
}

pub(crate) async fn prefill(backend: &mut impl Backend, slot: usize, prompt: &[u32], chunk: usize) {
    for (i, part) in prompt.chunks(chunk.min(backend.max_chunk())).enumerate() {
        backend.feed(slot, part, i * chunk.min(backend.max_chunk())).await.unwrap();
        if (i + 1) * chunk.min(backend.max_chunk()) >= prompt.len() {
            backend.head(slot, part.len() - 1).await.unwrap();
        }
    }
}

pub(crate) async fn alone(backend: &mut impl Backend, ask: &Ask) -> Answer {
    prefill(backend, 0, &ask.prompt, usize::MAX).await;
    let row = [Row::new(0, First::FromLogits, ask.prompt.len(), &ask.sampling)];
    let drawn = backend.burst(Burst { rows: &row, steps: ask.steps }).await.unwrap();
    Answer { ids: drawn[0].ids.clone(), logits: logits(backend, 0).await }
}

pub(crate) async fn logits(backend: &mut impl Backend, slot: usize) -> Vec<u32> {
    backend.read_logits(slot).await.unwrap().iter().map(|l| l.to_bits()).collect()
}

/// Decodes all asks at once, the `i`th in slot `slots[i]`, in bursts of `burst` steps.
pub(crate) async fn together(backend: &mut impl Backend, asks: &[Ask], slots: &[usize], burst: usize) -> Vec<Answer> {
    backend.configure(Execution::default()).unwrap();
    let pages_each = N_CTX / PAGE;
    let mut answers = Vec::new();
    for (i, ask) in asks.iter().enumerate() {
        // Pages in no order, so that a wrong table is seen.
        let n = backend.capacity().pages as u32;
        let pages: Vec<u32> = (0..pages_each).map(|p| ((p * asks.len() + i) as u32 * 7 + 3) % n).collect();
        backend.set_pages(slots[i], 0, &pages).unwrap();
        prefill(backend, slots[i], &ask.prompt, [usize::MAX, 7, 64][i % 3]).await;
        answers.push(Answer { ids: Vec::new(), logits: Vec::new() });
    }
    let mut done = 0;
    while done < asks[0].steps {
        let steps = if done == 0 { 1 } else { burst.min(asks[0].steps - done) };
        let rows: Vec<_> = (asks.iter().zip(slots))
            .map(|(ask, slot)| {
                let first = if done == 0 { First::FromLogits } else { First::FromState };
                Row::new(*slot, first, ask.prompt.len() + done.saturating_sub(1), &ask.sampling)
            })
            .collect();
        let drawn = backend.burst(Burst { rows: &rows, steps }).await.unwrap();
        for (answer, drawn) in answers.iter_mut().zip(drawn) {
            answer.ids.extend(drawn.ids);
        }
        done += steps;
    }
    for (answer, slot) in answers.iter_mut().zip(slots) {
        answer.logits = logits(backend, *slot).await;
    }
    answers
}

pub(crate) fn micros() -> Vec<(&'static str, Vec<u8>, KvType)> {
    vec![
        ("llama", MicroModel::llama(QuantType::Q4_0).bytes(), KvType::F16),
        ("llama, f16", MicroModel::llama(QuantType::F16).bytes(), KvType::F16),
        ("gemma3", MicroModel::gemma3(QuantType::Q8_0).bytes(), KvType::F16),
        ("qwen3", MicroModel::qwen3(QuantType::Q4_K).bytes(), KvType::F16),
        ("qwen35", MicroModel::qwen35(QuantType::Q4_1).bytes(), KvType::F16),
        ("qwen3moe", MicroModel::qwen3moe(QuantType::Q5_1).bytes(), KvType::F16),
        ("qwen3moe, f32", MicroModel::qwen3moe(QuantType::F32).bytes(), KvType::F16),
        ("gemma3, cache of q8_0", MicroModel::gemma3(QuantType::Q8_0).bytes(), KvType::Q8_0),
        ("qwen35, cache of q8_0", MicroModel::qwen35(QuantType::Q4_1).bytes(), KvType::Q8_0),
    ]
}

pub(crate) fn room(n: usize, slots: usize) -> Capacity {
    Capacity { slots, pages: n * (N_CTX / PAGE) + 3, ..Capacity::from(N_CTX) }
}
