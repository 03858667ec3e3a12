//! The whole tokenizer on vocabularies small enough to work out by hand.

use super::{Decoder, Tokenizer};
use crate::error::Error;
use crate::gguf::{Array, Metadata, Value};

const INT32: u32 = 5;
const FLOAT32: u32 = 6;
const STRING: u32 = 8;

fn strings<T: AsRef<[u8]>>(items: &[T]) -> Value {
    let encode = |s: &T| [&(s.as_ref().len() as u64).to_le_bytes()[..], s.as_ref()].concat();
    Value::Array(Array { element_type: STRING, len: items.len(), bytes: items.iter().flat_map(encode).collect() })
}

fn ints(items: &[i32]) -> Value {
    let bytes = items.iter().flat_map(|v| v.to_le_bytes()).collect();
    Value::Array(Array { element_type: INT32, len: items.len(), bytes })
}

fn floats(items: &[f32]) -> Value {
    let bytes = items.iter().flat_map(|v| v.to_le_bytes()).collect();
    Value::Array(Array { element_type: FLOAT32, len: items.len(), bytes })
}

fn metadata(pairs: Vec<(&str, Value)>) -> Metadata {
    let mut metadata = Metadata::default();
    for (key, value) in pairs {
        metadata.insert(format!("tokenizer.ggml.{key}"), value);
    }
    metadata
}

/// Ids: 0 to 255 the bytes in the order of their characters, then `th he the Ġthe`, `<|im_end|>`, `<tool>`.
fn byte_level() -> Metadata {
    let mut tokens: Vec<String> = (0..=255u8).map(|b| super::alphabet::char_of(b).to_string()).collect();
    tokens.extend(["th", "he", "the", "Ġthe", "<|im_end|>", "<tool>"].map(String::from));
    let mut types = vec![1; tokens.len()];
    types[261] = 4;
    metadata(vec![
        ("model", Value::String("gpt2".into())),
        ("pre", Value::String("gpt-2".into())),
        ("tokens", strings(&tokens)),
        ("token_type", ints(&types)),
        ("merges", strings(&["t h", "h e", "th e", "Ġ the", "e e"])),
        ("bos_token_id", Value::Uint(260)),
        ("eos_token_id", Value::Uint(0)),
        ("add_bos_token", Value::Bool(true)),
    ])
}

/// Ids: `<unk> <s> </s>`, three bytes, `▁ a b ab ▁ab abab`.
fn sentence_piece(space_prefix: bool) -> Metadata {
    let tokens = ["<unk>", "<s>", "</s>", "<0xC3>", "<0xA9>", "<0x0A>", "▁", "a", "b", "ab", "▁ab", "abab"];
    metadata(vec![
        ("model", Value::String("llama".into())),
        ("tokens", strings(&tokens)),
        ("token_type", ints(&[2, 3, 3, 6, 6, 6, 1, 1, 1, 1, 1, 1])),
        ("scores", floats(&[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -9.0, -8.0, -8.0, -1.0, -2.0, -0.5])),
        ("add_space_prefix", Value::Bool(space_prefix)),
    ])
}

fn build(metadata: &Metadata) -> Tokenizer {
    Tokenizer::from_metadata(metadata).expect("a tokenizer")
}

#[test]
fn byte_level_pairs() {
    let tokenizer = build(&byte_level());
    let (t, h, e) = (u32::from(b't'), u32::from(b'h'), u32::from(b'e'));
    let cases: [(&str, bool, &[u32]); 8] = [
        ("", true, &[]),
        ("the", false, &[258]),
        (" the the", false, &[259, 259]),
        ("thhe", false, &[256, 257]),
        // `ee` is a merge but no token: its characters are.
        ("ee", false, &[e, e]),
        ("é", false, &[0xc3, 0xa9]),
        ("t<|im_end|>h", true, &[t, 260, h]),
        // User-defined tokens are found even in plain text; `<|im_end|>` is not.
        ("<tool>he<tool>", false, &[261, 257, 261]),
    ];
    for (text, special, expected) in cases {
        assert_eq!(tokenizer.encode(text, special), expected, "{text:?}");
    }
    assert_eq!(tokenizer.encode("<|im_end|>", false).len(), 10);
    assert_eq!(tokenizer.encode_prompt("the"), [260, 258]);
    assert_eq!(tokenizer.encode_prompt("<|im_end|>the"), [260, 260, 258]);
    assert_eq!(tokenizer.encode_chat("<|im_end|>the"), [260, 258]);
    assert_eq!(tokenizer.encode_chat("the"), [260, 258]);
    assert_eq!(tokenizer.stop_ids(), [0, 260]);
    assert!(tokenizer.is_eog(260) && !tokenizer.is_eog(258) && tokenizer.is_control(260));
    assert_eq!(tokenizer.token_bytes(259), b" the");
    assert_eq!(tokenizer.token_bytes(999), b"");
    assert_eq!(tokenizer.token_id("<tool>"), Some(261));
}

#[test]
fn sentence_pieces() {
    let (prefixed, bare) = (build(&sentence_piece(true)), build(&sentence_piece(false)));
    let cases: [(&str, &[u32], &[u32]); 7] = [
        ("", &[], &[]),
        ("ab", &[10], &[9]),
        // `ab ab` merge to `abab` before the blank can take the first.
        ("abab", &[6, 11], &[11]),
        ("aab ab", &[6, 7, 9, 10], &[7, 9, 10]),
        ("é\n", &[6, 3, 4, 5], &[3, 4, 5]),
        // A byte without a token is unknown.
        ("\t", &[6, 0], &[0]),
        // The blank is put after special tokens, too.
        ("<s>ab</s>b", &[1, 10, 2, 6, 8], &[1, 9, 2, 8]),
    ];
    for (text, with_prefix, without) in cases {
        assert_eq!(prefixed.encode(text, true), with_prefix, "{text:?} with a blank in front");
        assert_eq!(bare.encode(text, true), without, "{text:?}");
    }
    assert_eq!(prefixed.encode_prompt(""), [1]);
    assert_eq!((prefixed.bos(), prefixed.eos(), prefixed.n_vocab()), (Some(1), Some(2), 12));
    assert_eq!(prefixed.decode(&[1, 10, 3, 4, 2]), "abé");
    assert_eq!(bare.decode(&[10, 3, 5]), " ab\u{fffd}\n");
}

#[test]
fn a_stream_shows_whole_characters_and_no_control_tokens() {
    let tokenizer = build(&sentence_piece(true));
    let mut decoder = Decoder::new();
    let texts: Vec<String> = [1, 10, 3, 4, 2].map(|id| decoder.push(&tokenizer, id)).into();
    assert_eq!(texts, ["", " ab", "", "é", ""]);
    let mut decoder = Decoder::with_special();
    assert_eq!(decoder.push(&tokenizer, 2), "</s>");
    let mut decoder = Decoder::showing(vec![999, 2, 10]);
    let texts: Vec<String> = [1, 2, 10, 0, 3, 4, 2].map(|id| decoder.push(&tokenizer, id)).into();
    assert_eq!(texts, ["", "</s>", " ab", "", "", "é", "</s>"]);
}

#[test]
fn random_bytes_as_text_come_back() {
    let tokenizer = build(&byte_level());
    let mut state = 1u64;
    for _ in 0..200 {
        let bytes: Vec<u8> = (0..64)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // Half of them letters that merge.
                if state >> 63 == 0 { b"the "[(state >> 40) as usize % 4] } else { (state >> 40) as u8 }
            })
            .collect();
        let text = String::from_utf8_lossy(&bytes);
        assert_eq!(tokenizer.decode(&tokenizer.encode(&text, false)), text);
    }
}

#[test]
fn what_is_wrong_with_a_vocabulary_is_said() {
    let model = |name: &str| ("model", Value::String(name.into()));
    let tokens = || ("tokens", strings(&["a", "b"]));
    let cases = [
        (vec![tokens()], "tokenizer.ggml.model is missing"),
        (vec![model("bert"), tokens()], "\"bert\", expected one of"),
        (vec![model("llama")], "tokenizer.ggml.tokens is missing"),
        (vec![model("llama"), ("tokens", strings::<&str>(&[]))], "has 0 entries"),
        (vec![model("llama"), ("tokens", ints(&[1]))], "expected an array of strings"),
        (vec![model("llama"), tokens(), ("token_type", ints(&[1]))], "token_type has 1 entries"),
        (vec![model("llama"), tokens(), ("scores", floats(&[1.0]))], "scores has 1 entries"),
        (vec![model("gpt2"), tokens()], "tokenizer.ggml.merges is missing"),
        (vec![model("gpt2"), tokens(), ("pre", Value::String("x1".into()))], "\"x1\" is not supported"),
    ];
    for (pairs, expected) in cases {
        let error: Error = Tokenizer::from_metadata(&metadata(pairs)).expect_err(expected);
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn odd_vocabularies_do_not_panic() {
    let odd: [&[u8]; 6] = [b"", b"\xff\xfe", b"a", b"a", b"<0xZZ>", b"<0x1"];
    for name in ["llama", "gpt2", "gemma4"] {
        let tokenizer = build(&metadata(vec![
            ("model", Value::String(name.into())),
            ("tokens", strings(&odd)),
            ("token_type", ints(&[6, 1, 4, 77, 6, -1])),
            ("merges", strings(&["", " ", "a", "a ", " a", "a a", "a a", "x y z"])),
            ("bos_token_id", Value::Uint(1 << 40)),
        ]));
        for text in ["", "a", "aaaa a", "<0xZZ>", "é\0😀"] {
            for id in tokenizer.encode_prompt(text) {
                assert!((id as usize) < odd.len());
            }
        }
        assert_eq!(tokenizer.token_bytes(u32::MAX), b"");
    }
}
