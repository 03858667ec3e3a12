//! Loading: progress, cancellation, and files whose content a model cannot use.

use std::cell::RefCell;
use std::rc::Rc;

use blueshift::Error;
use blueshift::engine::{BackendChoice, Engine, LoadOptions};
use blueshift::gguf::{Source, open};
use blueshift::micro::MicroModel;
use blueshift::model::load::CancelToken;
use blueshift::quant::QuantType;
use pollster::block_on;

fn load_with(bytes: Vec<u8>, options: LoadOptions) -> blueshift::Result<Engine> {
    block_on(Engine::load(Source::memory("micro", bytes), LoadOptions { backend: BackendChoice::Cpu, ..options }))
}

fn load(bytes: Vec<u8>) -> blueshift::Result<Engine> {
    load_with(bytes, LoadOptions::default())
}

fn replace(bytes: &mut [u8], from: &[u8], to: &[u8]) {
    assert_eq!(from.len(), to.len());
    let at = bytes.windows(from.len()).position(|w| w == from).expect("the text is in the file");
    bytes[at..at + to.len()].copy_from_slice(to);
}

#[test]
fn progress_ends_at_the_total() {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let sink = seen.clone();
    let progress = Box::new(move |p: blueshift::model::load::Progress<'_>| sink.borrow_mut().push((p.bytes, p.total)));
    load_with(
        MicroModel::llama(QuantType::Q8_0).bytes(),
        LoadOptions { progress: Some(progress), ..Default::default() },
    )
    .unwrap();
    let seen = seen.borrow();
    assert!(seen.is_sorted() && seen.len() > 10);
    let (bytes, total) = seen[seen.len() - 1];
    assert_eq!(bytes, total);
}

#[test]
fn cancelling_ends_the_load() {
    let cancel = CancelToken::default();
    let button = cancel.clone();
    let progress = Box::new(move |p: blueshift::model::load::Progress<'_>| {
        if p.bytes * 2 > p.total {
            button.cancel();
        }
    });
    let options = LoadOptions { progress: Some(progress), cancel, ..Default::default() };
    let error = load_with(MicroModel::llama(QuantType::Q8_0).bytes(), options).err();
    assert!(matches!(error, Some(Error::Cancelled)), "{error:?}");
}

#[test]
fn scales_that_are_not_numbers_are_refused() {
    for kind in QuantType::ALL {
        let mut bytes = MicroModel::llama(kind).bytes();
        let file = block_on(open(Source::memory("micro", bytes.clone()))).unwrap();
        let info = file.header.require("blk.1.ffn_down.weight").unwrap();
        // The first scale or value of the tensor's last block.
        let scale_at = if kind == QuantType::Q6_K { 208 } else { 0 };
        let at = info.end() as usize - kind.block_bytes() + scale_at;
        let nan: &[u8] = match kind {
            QuantType::F32 => &[0, 0, 0xc0, 0x7f],
            QuantType::BF16 => &[0xc0, 0x7f],
            _ => &[0, 0x7e],
        };
        bytes[at..at + nan.len()].copy_from_slice(nan);
        let error = load(bytes).err();
        assert!(
            matches!(&error, Some(Error::BadTensor { tensor, .. }) if tensor == "blk.1.ffn_down.weight"),
            "{kind:?}: {error:?}"
        );
    }
}

#[test]
fn what_a_model_needs_is_named() {
    let whole = MicroModel::llama(QuantType::Q4_0).bytes();
    let damaged = |from: &[u8], to: &[u8]| {
        let mut bytes = whole.clone();
        replace(&mut bytes, from, to);
        load(bytes).err()
    };
    let error = damaged(b"blk.0.attn_q.weight", b"blk.0.attn_x.weight");
    assert!(matches!(&error, Some(Error::MissingTensor { tensor }) if tensor == "blk.0.attn_q.weight"), "{error:?}");
    let error = damaged(b"llama.block_count", b"llama.block_xount");
    assert!(matches!(&error, Some(Error::MissingKey { key, .. }) if key == "llama.block_count"), "{error:?}");
    let architecture = b"general.architecture\x08\0\0\0\x05\0\0\0\0\0\0\0llama";
    let mut other = architecture.to_vec();
    other[architecture.len() - 5..].copy_from_slice(b"mamba");
    let error = damaged(architecture, &other);
    assert!(
        matches!(&error, Some(Error::UnsupportedArchitecture { name, supported }) if name == "mamba" && supported.contains("gemma3")),
        "{error:?}"
    );
}

#[test]
fn shapes_must_fit_the_hyper_parameters() {
    // Twice the feed-forward width in the metadata.
    let mut bytes = MicroModel::llama(QuantType::Q4_0).bytes();
    let key = b"llama.feed_forward_length\x04\0\0\0";
    let at = bytes.windows(key.len()).position(|w| w == key).expect("the key is a u32") + key.len();
    bytes[at..at + 4].copy_from_slice(&1024u32.to_le_bytes());
    let error = load(bytes).err();
    assert!(matches!(&error, Some(Error::BadTensor { tensor, .. }) if tensor == "blk.0.ffn_gate.weight"), "{error:?}");
}
