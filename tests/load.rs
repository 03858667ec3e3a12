//! Loading: progress, cancellation, and files whose content a model cannot use.

use std::cell::RefCell;
use std::rc::Rc;

use blueshift::Error;
use blueshift::engine::{BackendChoice, Engine, LoadOptions};
use blueshift::gguf::{Source, open};
use blueshift::micro::{MicroModel, writer::Writer};
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
        matches!(&error, Some(Error::UnsupportedArchitecture { name, supported }) if name == "mamba" && supported.starts_with("llama, gemma3, qwen3, qwen3moe, ")),
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
    for micro in [
        MicroModel::llama(QuantType::Q4_0),
        MicroModel::gemma3(QuantType::Q8_0),
        MicroModel::qwen3(QuantType::Q5_0),
        MicroModel::qwen3moe(QuantType::Q4_0),
    ] {
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
            "expert_count",
            "expert_used_count",
            "expert_feed_forward_length",
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

/// `key` is a u32 of the file.
fn with_u32(mut bytes: Vec<u8>, key: &str, value: u32) -> Vec<u8> {
    let key = [key.as_bytes(), b"\x04\0\0\0"].concat();
    let at = bytes.windows(key.len()).position(|w| w == key).expect("the key is a u32") + key.len();
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    bytes
}

#[test]
fn experts_must_fit_their_tensors() {
    let whole = MicroModel::qwen3moe(QuantType::Q4_0).bytes();
    let error = |key: &str, value| load(with_u32(whole.clone(), key, value)).err();
    // Of as many bytes, but other experts.
    let dims = |dims: [u64; 3]| dims.map(u64::to_le_bytes).concat();
    let mut other = whole.clone();
    replace(&mut other, &dims([256, 256, 8]), &dims([256, 128, 16]));
    let found = load(other).err();
    assert!(
        matches!(&found, Some(Error::BadTensor { tensor, .. }) if tensor == "blk.0.ffn_gate_exps.weight"),
        "{found:?}"
    );

    let found = error("qwen3moe.expert_count", 7);
    assert!(
        matches!(&found, Some(Error::BadTensor { tensor, .. }) if tensor == "blk.0.ffn_gate_inp.weight"),
        "{found:?}"
    );
    for (key, value) in [("expert_count", 0), ("expert_count", 513), ("expert_used_count", 0), ("expert_used_count", 9)]
    {
        let key = format!("qwen3moe.{key}");
        let found = error(&key, value);
        assert!(
            matches!(&found, Some(Error::BadValue { key: named, .. }) if *named == key),
            "{key} {value}: {found:?}"
        );
    }
}

/// llama.cpp divides the width of all used experts where that of one is missing.
#[test]
fn the_width_of_an_expert_may_be_left_out() {
    let whole = MicroModel::qwen3moe(QuantType::Q4_0).bytes();
    let logits = |bytes| block_on(load(bytes).expect("a model").logits(&[1, 2, 3], 0, false)).expect("logits");
    let without = with_u32(whole.clone(), "qwen3moe.expert_feed_forward_length", 0);
    assert_eq!(logits(without), logits(whole));
}

#[test]
fn a_token_reads_the_experts_it_uses() {
    let micro = |n_experts| MicroModel { n_experts, ..MicroModel::qwen3moe(QuantType::Q8_0) };
    let bytes = |n_experts| load(micro(n_experts).bytes()).expect("a model").info().bytes_per_token;
    // A router's row for each expert more, in each of two layers.
    assert_eq!(bytes(16) - bytes(8), 2 * 8 * 256 * 4);
    let expert = 3 * 256 * 256 / 32 * 34;
    let used = |n_experts_used| {
        load(MicroModel { n_experts_used, ..micro(8) }.bytes()).expect("a model").info().bytes_per_token
    };
    assert_eq!(used(5) - used(3), 2 * 2 * expert);
}

/// Other ways to weigh experts would give other answers.
#[test]
fn other_weights_of_experts_are_refused() {
    let bytes = MicroModel::qwen3moe(QuantType::Q4_0).bytes();
    for (key, refused) in [("expert_weights_scale", 2.5), ("expert_weights_scale", f32::NAN)] {
        let key = format!("qwen3moe.{key}");
        let mut pair = Writer::default();
        pair.f32(&key, refused);
        let found = load(with_pair(&bytes, pair)).err();
        assert!(matches!(&found, Some(Error::BadValue { key: named, .. }) if *named == key), "{found:?}");
    }
    for fine in [0.0, 1.0] {
        let mut pair = Writer::default();
        pair.f32("qwen3moe.expert_weights_scale", fine);
        assert!(load(with_pair(&bytes, pair)).is_ok());
    }
    for (norm, is_fine) in [(true, true), (false, false)] {
        let mut pair = Writer::default();
        pair.bool("qwen3moe.expert_weights_norm", norm);
        assert_eq!(load(with_pair(&bytes, pair)).is_ok(), is_fine);
    }
}

/// A file with one pair more, and a filler that keeps the tensors' data aligned.
fn with_pair(bytes: &[u8], mut pair: Writer) -> Vec<u8> {
    const N_PAIRS: std::ops::Range<usize> = 16..24;
    const ALIGNMENT: usize = 32;
    // A key of one letter, and the lengths and the type: 21 bytes.
    let filler = ALIGNMENT - (pair.sections()[4].len() + 21) % ALIGNMENT;
    pair.str("x", &"y".repeat(filler));
    let pairs = &pair.sections()[4];
    assert!(pairs.len().is_multiple_of(ALIGNMENT));
    let n_pairs = u64::from_le_bytes(bytes[N_PAIRS].try_into().expect("eight bytes")) + 2;
    [&bytes[..N_PAIRS.start], &n_pairs.to_le_bytes(), pairs, &bytes[N_PAIRS.end..]].concat()
}
