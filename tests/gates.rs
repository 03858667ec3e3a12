//! What holds for every row of a step, whoever shares it: it draws what the host would, reading it changes nothing, masks are its own, and its cache
//! does not depend on how its prompt was cut. Each with a canary. That rows are their sequences alone is the matter of `rows.rs`.

mod common;
mod scheduling;
mod stepping;

use blueshift::cpu::backend::CpuBackend;
use blueshift::engine::backend::{Backend, Burst, Capacity, First, Row};
use blueshift::gpu::GpuBackend;
use blueshift::micro::MicroModel;
use blueshift::plan::{KvType, PAGE};
use blueshift::sample::{Sampling, draw};
use common::some_ids;
use pollster::block_on;
use scheduling::models;
use stepping::{Ask, N_CTX, asks, logits, on_cpu, on_gpu, prefill, room};

const STEPS: usize = 5;
const SLOTS: usize = 10;

/// A model of each kind of layers.
fn kinds() -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    let all = models().into_iter().filter(|(name, ..)| ["llama", "gemma3", "qwen35", "qwen3moe"].contains(name));
    all.map(|(name, model, _)| (name, MicroModel { n_ctx: 1024, ..model }.bytes()))
}

/// Tests each model on the CPU and on the GPU, where there is one; both give the same.
fn compare<T: PartialEq>(
    capacity: Capacity,
    cpu: impl Fn(&str, &mut CpuBackend) -> T,
    gpu: impl Fn(&str, &mut GpuBackend) -> T,
) {
    let device = common::has_adapter().then(common::open_gpu);
    for (name, micro) in kinds() {
        let wanted = cpu(name, &mut on_cpu(&micro, KvType::F16, capacity));
        if let Some(device) = &device {
            let found = gpu(name, &mut on_gpu(device, &micro, KvType::F16, capacity));
            assert!(found == wanted, "{name}: the backends differ");
        }
    }
}

/// What a row drew, and the bits of its logits after each draw.
#[derive(Debug, Clone, Default, PartialEq)]
struct Drawn {
    ids: Vec<u32>,
    logits: Vec<Vec<u32>>,
}

/// The slots of `n` rows, in no order.
fn slots(n: usize) -> Vec<usize> {
    (0..n).map(|i| (i * 3 + 1) % SLOTS).collect()
}

/// Gives each ask a slot with pages of its own and feeds its prompt.
async fn begin(backend: &mut impl Backend, asks: &[Ask], slots: &[usize]) {
    for (i, (ask, slot)) in asks.iter().zip(slots).enumerate() {
        let pages: Vec<u32> = (0..N_CTX / PAGE).map(|p| (p * asks.len() + i) as u32).collect();
        backend.set_pages(*slot, 0, &pages).unwrap();
        prefill(backend, *slot, &ask.prompt, 64).await;
    }
}

/// Rows of a step that begins when `n` tokens were drawn.
fn rows<'a>(asks: &'a [Ask], slots: &[usize], first: First, n: usize) -> Vec<Row<'a>> {
    // Where the last token drawn has to be fed, it is not in the cache.
    let fed = |ask: &Ask| ask.prompt.len() + n - usize::from(first == First::FromState);
    asks.iter().zip(slots).map(|(ask, slot)| Row::new(*slot, first, fed(ask), &ask.sampling)).collect()
}

/// Single steps under masks, which `mask` gives by row and step: the pass over the weights, then the draws. Every row's logits are read after each.
async fn full(
    backend: &mut impl Backend,
    asks: &[Ask],
    slots: &[usize],
    mask: impl Fn(usize, usize) -> Option<Vec<u32>>,
) -> Vec<Drawn> {
    begin(backend, asks, slots).await;
    let mut all = vec![Drawn::default(); asks.len()];
    for step in 0..STEPS {
        if step > 0 {
            backend.forward(&rows(asks, slots, First::FromState, step)).await.unwrap();
        }
        let masks: Vec<_> = (0..asks.len()).map(|row| mask(row, step)).collect();
        let mut rows = rows(asks, slots, First::FromLogits, step);
        rows.iter_mut().zip(&masks).for_each(|(row, mask)| row.mask = mask.as_deref());
        let found = backend.burst(Burst { rows: &rows, steps: 1 }).await.unwrap();
        for ((drawn, found), slot) in all.iter_mut().zip(found).zip(slots) {
            drawn.ids.extend(found.ids);
            drawn.logits.push(logits(backend, *slot).await);
        }
    }
    all
}

/// What the host draws from `logits` where `ids` follow the prompt.
fn on_host(logits: &[u32], ask: &Ask, ids: &[u32], position: usize) -> Option<u32> {
    let logits: Vec<f32> = logits.iter().map(|bits| f32::from_bits(*bits)).collect();
    let drawn = draw(&logits, &ask.sampling, position as u32, &[&ask.prompt, ids].concat(), None);
    let largest = (0..logits.len()).reduce(|best, id| if logits[id] > logits[best] { id } else { best });
    assert!(ask.sampling != Sampling::GREEDY || drawn == largest.map(|id| id as u32), "the largest is drawn");
    drawn
}

async fn draws(name: &str, backend: &mut impl Backend) -> Vec<Drawn> {
    let mut last = Vec::new();
    for n in [1, 2, 5, 9] {
        let asks = &asks()[..n];
        last = full(backend, asks, &slots(n), |_, _| None).await;
        let mut seen = [false; 2];
        for (row, (ask, drawn)) in asks.iter().zip(&last).enumerate() {
            for step in 0..STEPS {
                let (ids, id) = (&drawn.ids[..step], Some(drawn.ids[step]));
                let position = ask.prompt.len() + step;
                assert_eq!(on_host(&drawn.logits[step], ask, ids, position), id, "{name}: row {row} of {n}");
                // The canary: another row's logits, and the noise of another position.
                seen[0] |= on_host(&last[(row + 1) % n].logits[step], ask, ids, position) != id;
                seen[1] |= on_host(&drawn.logits[step], ask, ids, position + 1) != id;
            }
        }
        assert!(n == 1 || seen == [true; 2], "{name}: {seen:?} of {n} rows");
    }
    last
}

#[test]
fn a_device_draws_what_the_host_draws_from_its_logits() {
    compare(room(9, SLOTS), |name, b| block_on(draws(name, b)), |name, b| block_on(draws(name, b)));
}

async fn parked(name: &str, backend: &mut impl Backend) {
    let (asks, slots) = (&asks()[..4], slots(4));
    let full = full(backend, asks, &slots, |_, _| None).await;
    begin(backend, asks, &slots).await;
    let found = backend.burst(Burst { rows: &rows(asks, &slots, First::FromLogits, 0), steps: STEPS }).await.unwrap();
    for (row, (found, full)) in found.iter().zip(&full).enumerate() {
        assert_eq!(found.ids, full.ids, "{name}: row {row}");
    }
    // The first row has left, the others go on.
    backend.burst(Burst { rows: &rows(asks, &slots, First::FromState, STEPS)[1..], steps: 3 }).await.unwrap();
    for (row, (slot, full)) in slots.iter().zip(&full).enumerate() {
        let is_parked = logits(backend, *slot).await == full.logits[STEPS - 1];
        // The canary: rows that have gone on have other logits.
        assert_eq!(is_parked, row == 0, "{name}: row {row}");
    }
}

#[test]
fn steps_that_nobody_reads_draw_the_same_and_park_their_logits() {
    compare(room(4, SLOTS), |name, b| block_on(parked(name, b)), |name, b| block_on(parked(name, b)));
}

/// Every eighth id or so.
fn some_mask(row: usize, step: usize, n_vocab: usize) -> Vec<u32> {
    let mut mask = vec![0; n_vocab.div_ceil(32)];
    for id in some_ids(n_vocab / 8, n_vocab) {
        let id = (id as usize * 5 + row * 37 + step * 11) % n_vocab;
        mask[id / 32] |= 1 << (id % 32);
    }
    mask
}

async fn masked(name: &str, backend: &mut impl Backend) -> Vec<Drawn> {
    let n = 7;
    let mut asks = asks()[..n].to_vec();
    for (i, ask) in asks.iter_mut().enumerate() {
        ask.sampling = Sampling::new((i / 2) as f32, i as u64);
    }
    let slots = slots(n);
    let free = full(backend, &asks, &slots, |_, _| None).await;
    let n_vocab = free[0].logits[0].len();
    // Temperatures 0, 1 and 2, and a row without a mask on either side.
    let mask = |row: usize, step| (row % 2 == 1).then(|| some_mask(row, step, n_vocab));
    let found = full(backend, &asks, &slots, mask).await;
    for (row, (found, free)) in found.iter().zip(&free).enumerate() {
        if row % 2 == 0 {
            assert!(found == free, "{name}: row {row} has no mask, its neighbours have");
            continue;
        }
        let is_allowed =
            |(step, id): (usize, &u32)| some_mask(row, step, n_vocab)[*id as usize / 32] >> (id % 32) & 1 == 1;
        assert!(found.ids.iter().enumerate().all(is_allowed), "{name}: row {row} draws what is masked");
        // The canary: without its mask it does.
        assert!(!free.ids.iter().enumerate().all(is_allowed), "{name}: the masks of row {row} forbid nothing");
        // What stays is what no mask has touched.
        for step in 0..STEPS {
            let tokens = [&asks[row].prompt[..], &found.ids[..step]].concat();
            prefill(backend, slots[row], &tokens, 64).await;
            assert!(logits(backend, slots[row]).await == found.logits[step], "{name}: logits of row {row}");
        }
    }
    found
}

#[test]
fn masks_bind_their_own_rows_and_leave_the_logits() {
    compare(room(7, SLOTS), |name, b| block_on(masked(name, b)), |name, b| block_on(masked(name, b)));
}

/// Everything a prompt leaves behind.
#[derive(PartialEq)]
struct Left {
    pages: Vec<Vec<u8>>,
    state: Vec<u8>,
    logits: Vec<u32>,
}

/// Feeds `prompt` in chunks to a slot with pages from `first_page` on.
async fn left(backend: &mut impl Backend, prompt: &[u32], chunk: usize, first_page: u32) -> Left {
    let pages: Vec<u32> = (first_page..).take(prompt.len().div_ceil(PAGE)).collect();
    backend.set_pages(0, 0, &pages).unwrap();
    prefill(backend, 0, prompt, chunk).await;
    backend.save_state(0, 0).unwrap();
    let mut read = Vec::new();
    for page in pages {
        read.push(backend.read_page(page).await.unwrap());
    }
    Left { pages: read, state: backend.read_state(0).await.unwrap(), logits: logits(backend, 0).await }
}

/// Nine pages, the last of which is not full.
const N_PROMPT: usize = 8 * PAGE + 9;

async fn chunks(name: &str, backend: &mut impl Backend) -> Left {
    let mut prompt = some_ids(N_PROMPT, 256);
    let whole = left(backend, &prompt, usize::MAX, 0).await;
    let n_pages = whole.pages.len() as u32;
    for (i, chunk) in (1..).zip([1, 7, 64, 512]) {
        // Pages that nobody has written before.
        let found = left(backend, &prompt, chunk, i * n_pages).await;
        let same: Vec<_> = found.pages.iter().zip(&whole.pages).map(|(a, b)| a == b).collect();
        assert!(found == whole, "{name}: chunks of {chunk}: pages that are equal {same:?}");
    }
    // The canary: another token in the last page changes that page and what follows from it, and nothing before.
    prompt[8 * PAGE + 5] ^= 1;
    let other = left(backend, &prompt, 64, 5 * n_pages).await;
    let same = other.pages.iter().zip(&whole.pages).take_while(|(a, b)| a == b).count();
    assert!(same == 8 && other.logits != whole.logits, "{name}: {same} pages are equal");
    assert_eq!(other.state != whole.state, name == "qwen35", "{name}");
    whole
}

#[test]
fn however_a_prompt_is_cut_it_leaves_the_same_cache() {
    let capacity = Capacity { slots: 1, pages: 6 * N_PROMPT.div_ceil(PAGE), ..Capacity::from(N_PROMPT) };
    compare(capacity, |name, b| block_on(chunks(name, b)), |name, b| block_on(chunks(name, b)));
}
