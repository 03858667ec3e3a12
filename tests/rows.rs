//! Steps of several sequences: each row's bits are those of its sequence alone, in any slot, beside any others.

mod common;
mod stepping;

use blueshift::engine::backend::{Backend, Burst, Drawn, First, Row, RowEnd};
use blueshift::error::Error;
use blueshift::micro::MicroModel;
use blueshift::plan::KvType;
use blueshift::quant::QuantType;
use blueshift::sample::Sampling;
use common::some_ids;
use pollster::block_on;
use stepping::{N_CTX, alone, asks, logits, micros, on_cpu, on_gpu, prefill, room, together};

/// Every row alone, then all of them beside each other in several orders and sizes of batches.
async fn check<B: Backend>(name: &str, mut solo: B, mut many: B) {
    let asks = asks();
    let mut wanted = Vec::new();
    for ask in &asks {
        wanted.push(alone(&mut solo, ask).await);
    }
    let all: Vec<usize> = (0..asks.len()).collect();
    for (n, shift, burst) in [(1, 4, 5), (2, 9, 3), (3, 0, 11), (5, 2, 4), (9, 1, 6)] {
        let slots: Vec<usize> = all.iter().take(n).map(|i| (i * 3 + shift) % many.capacity().slots).collect();
        let found = together(&mut many, &asks[..n], &slots, burst).await;
        for (i, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
            assert_eq!(found.ids, wanted.ids, "{name}: row {i} of {n} in slots {slots:?}");
            assert!(found.logits == wanted.logits, "{name}: logits of row {i} of {n} in slots {slots:?}");
        }
    }
    // The canary: another token in one prompt changes that row alone.
    let mut other = asks[..3].to_vec();
    other[1].prompt[5] ^= 1;
    let found = together(&mut many, &other, &[4, 0, 2], 4).await;
    assert!(found[0] == wanted[0] && found[2] == wanted[2], "{name}: a neighbour changed");
    assert!(found[1].logits != wanted[1].logits, "{name}: the flipped token was not seen");
}

#[test]
fn rows_are_their_sequences_alone_on_the_cpu() {
    for (name, micro, kv) in micros() {
        block_on(check(name, on_cpu(&micro, kv, N_CTX.into()), on_cpu(&micro, kv, room(9, 10))));
    }
}

#[test]
fn rows_are_their_sequences_alone_on_the_gpu() {
    if !common::has_adapter() {
        return;
    }
    let gpu = common::open_gpu();
    for (name, micro, kv) in micros() {
        block_on(check(name, on_gpu(&gpu, &micro, kv, N_CTX.into()), on_gpu(&gpu, &micro, kv, room(9, 10))));
    }
}

/// Rows that end leave the others alone, and their logits stay as they were.
async fn ends(backend: &mut impl Backend) {
    let asks = &asks()[..3];
    let greedy = Sampling::GREEDY;
    let slots = [2, 0, 1];
    let wanted = together(backend, asks, &slots, 11).await;
    let stop = [wanted[1].ids[4]];
    let cut = wanted[1].ids.iter().position(|id| *id == stop[0]).unwrap() + 1;
    let mut parked = Vec::new();
    for round in 0..2 {
        for (ask, slot) in asks.iter().zip(slots) {
            prefill(backend, slot, &ask.prompt, 64).await;
        }
        let rows: Vec<_> = (asks.iter().zip(slots).enumerate())
            .map(|(i, (ask, slot))| {
                let row = Row::new(slot, First::FromLogits, ask.prompt.len(), &ask.sampling);
                match i {
                    1 => Row { stop_ids: &stop, ..row },
                    2 => Row { left: 3, ..row },
                    _ => row,
                }
            })
            .collect();
        let steps = if round == 0 { cut } else { 12 };
        let drawn = backend.burst(Burst { rows: &rows, steps }).await.unwrap();
        if round == 0 {
            parked = logits(backend, 0).await;
            continue;
        }
        assert_eq!(drawn[0], Drawn { ids: wanted[0].ids.clone(), end: None });
        assert_eq!(drawn[1], Drawn { ids: wanted[1].ids[..cut].to_vec(), end: Some(RowEnd::StopId) });
        assert_eq!(drawn[2], Drawn { ids: wanted[2].ids[..3].to_vec(), end: Some(RowEnd::MaxTokens) });
        assert!(logits(backend, 0).await == parked, "an ended row's logits changed");
        assert!(logits(backend, 2).await == wanted[0].logits, "a running row's logits changed");
    }
    // A step split into its pass and its draw gives the same.
    for (ask, slot) in asks.iter().zip(slots) {
        prefill(backend, slot, &ask.prompt, 64).await;
    }
    let mut ids = vec![Vec::new(); 3];
    for step in 0..5 {
        let at: Vec<usize> = asks.iter().map(|ask| ask.prompt.len() + step).collect();
        if step > 0 {
            let before = asks.iter().zip(slots).zip(&at);
            let before = before.map(|((ask, slot), at)| Row::new(slot, First::FromState, at - 1, &ask.sampling));
            backend.forward(&before.collect::<Vec<_>>()).await.unwrap();
        }
        let rows: Vec<_> = (asks.iter().zip(slots).zip(&at))
            .map(|((ask, slot), at)| Row::new(slot, First::FromLogits, *at, &ask.sampling))
            .collect();
        let drawn = backend.burst(Burst { rows: &rows, steps: 1 }).await.unwrap();
        ids.iter_mut().zip(drawn).for_each(|(ids, drawn)| ids.extend(drawn.ids));
    }
    for (ids, wanted) in ids.iter().zip(&wanted) {
        assert_eq!(ids[..], wanted.ids[..5]);
    }
    // Pages: a copy is the page, bytes come back, and what is wrong is said.
    let page = backend.read_page(10).await.unwrap();
    backend.copy_page(10, 6).unwrap();
    assert!(backend.read_page(6).await.unwrap() == page && page.iter().any(|byte| *byte != 0));
    let changed: Vec<u8> = page.iter().map(|byte| byte ^ 1).collect();
    backend.write_page(6, &changed).unwrap();
    assert!(backend.read_page(6).await.unwrap() == changed && backend.read_page(10).await.unwrap() == page);
    assert!(matches!(backend.write_page(6, &page[1..]), Err(Error::BadOption { option: "bytes of a page", .. })));
    assert!(matches!(backend.copy_page(10, u32::MAX), Err(Error::BadOption { option: "page", .. })));
    let missing = [Row::new(9, First::Token(1), 0, &greedy)];
    assert!(matches!(backend.burst(Burst { rows: &missing, steps: 1 }).await, Err(Error::BadOption { .. })));
}

#[test]
fn ended_rows_split_steps_and_pages() {
    let micro = MicroModel::llama(QuantType::Q8_0).bytes();
    for kv in KvType::ALL {
        let mut cpu = on_cpu(&micro, kv, room(3, 3));
        block_on(ends(&mut cpu));
        if common::has_adapter() {
            let gpu = common::open_gpu();
            let mut device = on_gpu(&gpu, &micro, kv, room(3, 3));
            block_on(ends(&mut device));
            for page in [1, 2, 3, 8, 10] {
                let pages = [block_on(cpu.read_page(page)).unwrap(), block_on(device.read_page(page)).unwrap()];
                assert!(pages[0] == pages[1], "page {page}, {kv:?}");
            }
        }
    }
}

/// A sequence goes on from a snapshot as it went on from where the snapshot was taken, in any slot.
async fn snapshots(backend: &mut impl Backend) -> Vec<u8> {
    let ids = some_ids(90, 256);
    let rest = &ids[70..];
    backend.feed(0, &ids[..40], 0).await.unwrap();
    backend.feed(0, &ids[40..64], 40).await.unwrap();
    backend.save_state(0, 2).unwrap();
    backend.feed(0, &ids[64..70], 64).await.unwrap();
    let saved = backend.read_state(2).await.unwrap();
    assert!(saved.iter().any(|byte| *byte != 0));
    backend.save_state(0, 0).unwrap();
    assert!(backend.read_state(0).await.unwrap() != saved, "six more tokens changed nothing");
    backend.feed(0, rest, 70).await.unwrap();
    backend.head(0, rest.len() - 1).await.unwrap();
    let wanted = logits(backend, 0).await;
    // Back in the same slot; without the snapshot the same tokens give something else.
    backend.feed(0, &ids[64..], 64).await.unwrap();
    backend.head(0, ids.len() - 65).await.unwrap();
    assert!(logits(backend, 0).await != wanted, "the state did not matter");
    backend.load_state(0, 2).unwrap();
    backend.feed(0, &ids[64..], 64).await.unwrap();
    backend.head(0, ids.len() - 65).await.unwrap();
    assert!(logits(backend, 0).await == wanted, "a rewound sequence differs");
    // In another slot with the same pages, through bytes; the first slot keeps its own state.
    backend.set_pages(1, 0, &[0, 1]).unwrap();
    backend.write_state(1, &saved).unwrap();
    assert!(backend.read_state(1).await.unwrap() == saved);
    backend.load_state(1, 1).unwrap();
    backend.feed(1, &ids[64..70], 64).await.unwrap();
    backend.save_state(1, 3).unwrap();
    assert!(backend.read_state(3).await.unwrap() == backend.read_state(0).await.unwrap());
    backend.feed(1, rest, 70).await.unwrap();
    backend.head(1, rest.len() - 1).await.unwrap();
    assert!(logits(backend, 1).await == wanted, "a sequence in another slot differs");
    let wrong = [backend.save_state(0, 4), backend.load_state(0, 4), backend.save_state(2, 0)];
    assert!(wrong.iter().all(|result| matches!(result, Err(Error::BadOption { .. }))));
    assert!(matches!(backend.write_state(0, &saved[4..]), Err(Error::BadOption { option: "bytes of a snapshot", .. })));
    // Position 0 begins anew, whatever the slot held.
    backend.feed(1, &ids[..64], 0).await.unwrap();
    backend.save_state(1, 3).unwrap();
    assert!(backend.read_state(3).await.unwrap() == saved, "a new sequence began with an old state");
    saved
}

#[test]
fn recurrent_states_are_saved_and_loaded() {
    let micro = MicroModel::qwen35(QuantType::Q5_0).bytes();
    let saved = block_on(snapshots(&mut on_cpu(&micro, KvType::F16, room(2, 2))));
    if common::has_adapter() {
        let gpu = common::open_gpu();
        assert!(
            block_on(snapshots(&mut on_gpu(&gpu, &micro, KvType::F16, room(2, 2)))) == saved,
            "the device's state differs"
        );
    }
}
