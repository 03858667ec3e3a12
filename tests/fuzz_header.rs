//! Mutated headers: no panic, and memory bounded by the file's size.
//!
//! Runs for two seconds; `BLUESHIFT_FUZZ_SECONDS` sets another time.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use blueshift::gguf::{self, GgufFile, Source, Value};
use blueshift::micro::MicroModel;
use blueshift::micro::writer::{Writer, value_type};
use blueshift::quant::QuantType;

/// Counts the bytes in use and their peak.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let in_use = IN_USE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(in_use, Ordering::Relaxed);
        // SAFETY: the caller's duties are those of this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's duties are those of this function.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// A file to mutate and the length of its header, where mutations fall.
struct Seed {
    bytes: Vec<u8>,
    header: usize,
}

fn seeds() -> Vec<Seed> {
    let models = [MicroModel::tiny(QuantType::Q8_0), MicroModel::gemma3(QuantType::Q4_K)];
    let mut seeds: Vec<Seed> = models.iter().map(model_seed).collect();
    seeds.extend([2, 3].map(small_seed));
    seeds
}

fn model_seed(model: &MicroModel) -> Seed {
    let bytes = model.bytes();
    let file = open(bytes.clone()).expect("a valid model");
    let header = file.header.tensors()[0].offset as usize;
    Seed { bytes, header }
}

/// A header of some hundred bytes, where a mutation often hits a length or a type.
fn small_seed(version: u32) -> Seed {
    let mut w = Writer::with_version(version);
    w.alignment(32);
    w.strings("s", &["a", "bc"]);
    w.i32s("i", &[1, -2]);
    w.f32("f", 0.5);
    let nested = [value_type::U32.to_le_bytes().as_slice(), &1u64.to_le_bytes(), &[7; 4]].concat();
    w.array("n", value_type::ARRAY, 2, &nested.repeat(2));
    w.u32("split.count", 1);
    w.tensor("a", &[32, 2, 2], 8, 136);
    w.tensor("b", &[8], 0, 32);
    let mut bytes = w.header();
    let header = bytes.len();
    bytes.resize(header + w.data_bytes() as usize, 0);
    Seed { bytes, header }
}

fn mutate(rng: &mut Rng, seed: &Seed) -> Vec<u8> {
    let mut bytes = seed.bytes.clone();
    for _ in 0..=rng.below(4) {
        let header = seed.header.min(bytes.len());
        let at = rng.below(header);
        match rng.below(7) {
            0 => flip(&mut bytes, at, 1 << rng.below(8)),
            1 => flip(&mut bytes, at, rng.next() as u8),
            2 => overwrite(&mut bytes, at, &interesting(rng).to_le_bytes()),
            3 => overwrite(&mut bytes, at, &(interesting(rng) as u32).to_le_bytes()),
            4 => bytes.truncate(at),
            5 => {
                // A piece of the header again, somewhere else in it.
                let from = rng.below(header);
                let piece = bytes[from..header.min(from + rng.below(64))].to_vec();
                bytes.splice(at..at, piece);
            }
            _ => drop(bytes.drain(at..header.min(at + rng.below(32)))),
        }
    }
    bytes
}

fn flip(bytes: &mut [u8], at: usize, bits: u8) {
    if let Some(byte) = bytes.get_mut(at) {
        *byte ^= bits;
    }
}

fn overwrite(bytes: &mut [u8], at: usize, with: &[u8]) {
    for (byte, new) in bytes.iter_mut().skip(at).zip(with) {
        *byte = *new;
    }
}

/// Numbers at which lengths, counts and products tip over.
fn interesting(rng: &mut Rng) -> u64 {
    let power = 1u64 << rng.below(64);
    match rng.below(4) {
        0 => power,
        1 => power.wrapping_sub(1),
        2 => power.wrapping_neg(),
        _ => rng.next() % 300,
    }
}

fn open(bytes: Vec<u8>) -> blueshift::Result<GgufFile> {
    pollster::block_on(gguf::open(Source::memory("fuzz", bytes)))
}

/// Reads all that an opened file offers.
fn walk(file: &GgufFile) -> u64 {
    let mut seen = 0;
    for (key, value) in file.header.metadata.iter() {
        seen += (key.len() + value.describe().len()) as u64;
        let Value::Array(array) = value else { continue };
        seen += array.strings().map_or(0, |s| s.map(|s| s.len() as u64).sum());
        seen += array.integers().map_or(0, |s| s.count() as u64);
        seen += array.u32s().map_or(0, |s| s.count() as u64) + array.i32s().map_or(0, |s| s.count() as u64);
        seen += array.f32s().map_or(0, |s| s.count() as u64) + array.bools().map_or(0, |s| s.count() as u64);
        let _ = file.header.metadata.usize_per_layer(key, 7);
    }
    for tensor in file.header.tensors() {
        let bytes = file.tensor_bytes(tensor).expect("the table was checked against the file");
        assert_eq!(bytes.len(), tensor.rows() * tensor.row_bytes(), "{tensor:?}");
        seen += u64::from(bytes[0]) + u64::from(bytes[bytes.len() - 1]);
    }
    seen
}

#[test]
fn mutated_headers_neither_panic_nor_allocate_much() {
    let seconds = std::env::var("BLUESHIFT_FUZZ_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(2);
    let end = Instant::now() + Duration::from_secs(seconds);
    let seeds = seeds();
    let mut rng = Rng(0x5eed);
    let (mut runs, mut opened, mut largest) = (0u64, 0u64, 0);
    while Instant::now() < end {
        let before = IN_USE.load(Ordering::Relaxed);
        // Small seeds are cheap, so most runs take one.
        let seed = &seeds[if rng.below(8) == 0 { rng.below(2) } else { 2 + rng.below(2) }];
        let bytes = mutate(&mut rng, seed);
        let allowed = bytes.len() * 4 + (8 << 20);
        PEAK.store(IN_USE.load(Ordering::Relaxed), Ordering::Relaxed);
        if let Ok(file) = open(bytes) {
            std::hint::black_box(walk(&file));
            opened += 1;
        }
        let peak = PEAK.load(Ordering::Relaxed) - before;
        assert!(peak <= allowed, "run {runs}: {peak} bytes in use, {allowed} allowed");
        largest = largest.max(peak);
        runs += 1;
    }
    println!("{runs} runs, {opened} opened, at most {largest} bytes in use");
    assert!(opened > 0 && opened < runs, "{opened} of {runs} opened: the mutations test nothing");
}
