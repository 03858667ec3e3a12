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
        matches!(&error, Some(Error::UnsupportedArchitecture { name, supported }) if name == "mamba" && supported == "llama, gemma3, qwen3"),
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

/// Numbers that a damaged or hostile file may hold, in every hyper-parameter, one at a time: refused or harmless, never a panic.
#[test]
fn no_hyper_parameter_panics() {
    for micro in
        [MicroModel::llama(QuantType::Q4_0), MicroModel::gemma3(QuantType::Q8_0), MicroModel::qwen3(QuantType::Q5_0)]
    {
        let whole = micro.bytes();
        let arch = micro.arch.name();
        let keys = [
            "block_count",
            "context_length",
            "embedding_length",
            "feed_forward_length",
            "attention.head_count",
            "attention.head_count_kv",
            "attention.key_length",
            "attention.value_length",
            "attention.sliding_window",
            "attention.layer_norm_rms_epsilon",
            "rope.dimension_count",
            "rope.freq_base",
        ];
        let mut tried = 0;
        for key in keys {
            // Both u32 and f32 are four bytes behind four bytes of type.
            let name = format!("{arch}.{key}");
            let Some(at) = whole.windows(name.len()).position(|w| w == name.as_bytes()) else { continue };
            let at = at + name.len() + 4;
            for bits in [0, 1, 2, 3, 7, 31, 33, 64, 1 << 16, 1 << 30, 1 << 31, u32::MAX, 0x7fc0_0000, 0xff80_0000] {
                let mut bytes = whole.clone();
                bytes[at..at + 4].copy_from_slice(&bits.to_le_bytes());
                let loaded = load_with(bytes, LoadOptions { n_ctx: Some(8), ..Default::default() });
                if let Ok(mut engine) = loaded {
                    block_on(engine.logits(&[1, 2, 3], 0, false)).unwrap();
                }
                tried += 1;
            }
        }
        assert!(tried > 100, "{tried} cases");
    }
}

/// A tensor in a layer that the architecture does not read would make every answer wrong.
#[test]
fn unused_layer_tensors_are_refused() {
    let mut bytes = MicroModel::gemma3(QuantType::Q4_0).bytes();
    let gemma = b"general.architecture\x08\0\0\0\x06\0\0\0\0\0\0\0gemma3";
    assert!(bytes.windows(gemma.len()).any(|w| w == gemma));
    // A layer more than the metadata say.
    let key = b"gemma3.block_count\x04\0\0\0";
    let at = bytes.windows(key.len()).position(|w| w == key).expect("the key is a u32") + key.len();
    bytes[at..at + 4].copy_from_slice(&6u32.to_le_bytes());
    let error = load(bytes).err();
    assert!(matches!(&error, Some(Error::BadTensor { tensor, .. }) if tensor.starts_with("blk.6.")), "{error:?}");
}

/// Qwen's layers are Llama's with two norms more: neither may pass for the other.
#[test]
fn one_architecture_does_not_read_anothers_layers() {
    let renamed = |micro: MicroModel, from: &[u8], to: &[u8]| {
        let mut bytes = micro.bytes();
        while bytes.windows(from.len()).any(|w| w == from) {
            replace(&mut bytes, from, to);
        }
        load(bytes).err()
    };
    let error = renamed(MicroModel::qwen3(QuantType::Q4_0), b"qwen3", b"llama");
    assert!(
        matches!(&error, Some(Error::BadTensor { tensor, .. }) if tensor == "blk.0.attn_q_norm.weight"),
        "{error:?}"
    );
    let error = renamed(MicroModel::llama(QuantType::Q4_0), b"llama", b"qwen3");
    assert!(
        matches!(&error, Some(Error::MissingTensor { tensor }) if tensor == "blk.0.attn_q_norm.weight"),
        "{error:?}"
    );
}
