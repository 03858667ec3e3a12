//! Steps of any number of rows, for weights of any type: each row's logits are those of its sequence alone on the cpu backend, however its prompt
//! was cut.

mod common;
mod stepping;

use blueshift::engine::backend::{Backend, Capacity, First, Row};
use blueshift::gpu::Gpu;
use blueshift::micro::MicroModel;
use blueshift::plan::KvType;
use blueshift::quant::QuantType;
use blueshift::sample::Sampling;
use common::some_ids;
use pollster::block_on;
use stepping::{logits, on_cpu, on_gpu, prefill};

const N_CTX: usize = 128;
static GREEDY: Sampling = Sampling::GREEDY;

const SIZES: [usize; 10] = [1, 2, 3, 7, 8, 9, 16, 17, 33, 64];

/// Micro models of an architecture, by the type of their weights.
type Preset = (&'static str, fn(QuantType) -> MicroModel);

const PRESETS: [Preset; 6] = [
    ("llama", MicroModel::llama),
    ("gemma3", MicroModel::gemma3),
    ("qwen3", MicroModel::qwen3),
    ("qwen3moe", MicroModel::qwen3moe),
    ("qwen35", MicroModel::qwen35),
    ("qwen3next", MicroModel::qwen3next),
];

/// The sequence of a slot: its prompt, the token it is fed then.
fn sequence(slot: usize) -> (Vec<u32>, u32) {
    let ids = some_ids(2 + slot * 7 % 70 + slot, 256);
    let (last, prompt) = ids[slot..].split_last().expect("two tokens at least");
    (prompt.to_vec(), *last)
}

/// Feeds the tokens of the slots and gives their logits.
async fn step(backend: &mut impl Backend, slots: &[usize]) -> Vec<Vec<u32>> {
    let sequences: Vec<_> = slots.iter().map(|slot| sequence(*slot)).collect();
    let rows = slots.iter().zip(&sequences);
    let row = |(slot, (prompt, token)): (&usize, &(Vec<u32>, u32))| {
        Row::new(*slot, First::Token(*token), prompt.len(), &GREEDY)
    };
    backend.forward(&rows.map(row).collect::<Vec<_>>()).await.unwrap();
    let mut found = Vec::new();
    for slot in slots {
        found.push(logits(backend, *slot).await);
    }
    found
}

/// Compares every step of one of `sizes` rows with the sequences alone.
async fn check(gpu: &Gpu, name: &str, micro: &[u8], sizes: &[usize]) {
    let n = *sizes.iter().max().expect("some size");
    let capacity = Capacity { slots: n, pages: 2 * n, snapshots: n, ..Capacity::from(N_CTX) };
    let (mut cpu, mut many) = (on_cpu(micro, KvType::F16, capacity), on_gpu(gpu, micro, KvType::F16, capacity));
    let mut wanted = Vec::new();
    for slot in 0..n {
        let (prompt, _) = sequence(slot);
        let pages = [2 * slot as u32, 2 * slot as u32 + 1];
        cpu.set_pages(slot, 0, &pages).unwrap();
        many.set_pages(slot, 0, &pages).unwrap();
        prefill(&mut cpu, slot, &prompt, usize::MAX).await;
        prefill(&mut many, slot, &prompt, [1, 7, 64, usize::MAX][slot % 4]).await;
        many.save_state(slot, slot).unwrap();
        wanted.push(step(&mut cpu, &[slot]).await.remove(0));
    }
    for &size in sizes {
        // Neighbours far apart, in no order; what a step left behind is undone.
        let slots: Vec<usize> = (0..size).map(|i| (i * 11 + size) % n).collect();
        assert!((1..size).all(|i| !slots[..i].contains(&slots[i])), "{n} slots have no common factor with the stride");
        slots.iter().for_each(|slot| many.load_state(*slot, *slot).unwrap());
        for (slot, found) in slots.iter().zip(step(&mut many, &slots).await) {
            assert!(found == wanted[*slot], "{name}: the logits of slot {slot} among {size} rows");
        }
    }
    // The canary: with another token in its place a row's logits are others.
    let other = some_ids(3, 256)[2] ^ 1;
    many.load_state(0, 0).unwrap();
    let row = Row::new(0, First::Token(other), sequence(0).0.len(), &GREEDY);
    many.forward(&[row]).await.unwrap();
    assert!(logits(&mut many, 0).await != wanted[0], "{name}: another token, the same logits");
}

/// A few of them, for devices that compute on the processor.
#[test]
fn some_sizes_and_types() {
    if !common::has_adapter() {
        return;
    }
    let gpu = common::open_gpu();
    for ((name, preset), kind) in [(PRESETS[0], QuantType::Q4_0), (PRESETS[4], QuantType::Q6_K)] {
        let name = format!("{name}, {kind:?}");
        block_on(check(&gpu, &name, &preset(kind).bytes(), &[1, 3, 9, 17]));
    }
}

#[test]
#[ignore = "takes minutes without a GPU: for machines that have one"]
fn every_size_and_type() {
    let gpu = common::open_gpu();
    std::thread::scope(|scope| {
        for (name, preset) in PRESETS {
            let gpu = &gpu;
            scope.spawn(move || {
                for kind in QuantType::ALL {
                    block_on(check(gpu, &format!("{name}, {kind:?}"), &preset(kind).bytes(), &SIZES));
                }
            });
        }
    });
}
