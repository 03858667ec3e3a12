//! Small vocabularies that make constraints hard: tokens with several parts of JSON, tokens with parts of characters, special tokens that are
//! spelled like JSON. And a random model over them.

use blueshift::gguf::{Source, open};
use blueshift::micro::writer::Writer;
use blueshift::numerics::philox::{random_word, uniform};
use blueshift::tokenizer::Tokenizer;

/// Rows of logits behind the last token.
pub(crate) const PADDING: usize = 7;

/// Texts of tokens beside the single bytes; their beginnings are tokens, too.
const TEXTS: [&str; 44] = [
    "{\"",
    "\":",
    "\": ",
    "\",",
    "\", \"",
    "\"}",
    "},{",
    "}}",
    "]}",
    "[[",
    "],[",
    "[1,2,",
    "{\"a\":1}",
    "{\"name\":\"",
    "\"},{\"",
    "true",
    "false",
    "null",
    "null,",
    "name",
    "value",
    "kind",
    "type",
    "children",
    "coordinates",
    "type\":\"",
    "123",
    "00",
    "0.5",
    "-1",
    "e+",
    "  ",
    "\n  ",
    "\n    ",
    " the",
    "hello",
    "\\\"",
    "\\n",
    "\\u00",
    "é",
    "日本",
    "😀",
    "€\"",
    "ab",
];
/// Special tokens. The second one is spelled like JSON, which it is not.
const SPECIAL: [&str; 4] = ["<|bos|>", "[]", "<|eos|>", "<|im_end|>"];

/// A byte-level vocabulary.
pub(crate) fn byte_level() -> Tokenizer {
    let mut tokens: Vec<String> = (0..=255).map(|byte| printable(byte).to_string()).collect();
    let mut merges = Vec::new();
    for text in TEXTS {
        let chars: Vec<char> = text.bytes().map(printable).collect();
        for n in 2..=chars.len() {
            let token: String = chars[..n].iter().collect();
            if !tokens.contains(&token) {
                merges.push(format!("{} {}", chars[..n - 1].iter().collect::<String>(), chars[n - 1]));
                tokens.push(token);
            }
        }
    }
    let mut w = Writer::default();
    w.str("tokenizer.ggml.model", "gpt2");
    w.str("tokenizer.ggml.pre", "gpt-2");
    w.strings("tokenizer.ggml.merges", &merges);
    finish(w, tokens, Vec::new())
}

/// A SentencePiece vocabulary: byte tokens, ASCII, texts.
pub(crate) fn sentence_piece() -> Tokenizer {
    let mut tokens: Vec<String> = (0..=255u8).map(|byte| format!("<0x{byte:02X}>")).collect();
    let mut types = vec![6; tokens.len()];
    tokens.extend((0x21..0x7f).map(|c| char::from(c).to_string()));
    tokens.push("▁".into());
    for text in TEXTS {
        let chars: Vec<char> = text.replace(' ', "▁").chars().collect();
        for n in 1..=chars.len() {
            let token: String = chars[..n].iter().collect();
            if !tokens.contains(&token) {
                tokens.push(token);
            }
        }
    }
    types.resize(tokens.len(), 1);
    let scores: Vec<u8> = tokens.iter().flat_map(|t| (t.chars().count() as f32).to_le_bytes()).chain([0; 16]).collect();
    let mut w = Writer::default();
    w.str("tokenizer.ggml.model", "llama");
    w.bool("tokenizer.ggml.add_space_prefix", true);
    w.array("tokenizer.ggml.scores", blueshift::micro::writer::value_type::F32, scores.len() as u64 / 4, &scores);
    finish(w, tokens, types)
}

fn finish(mut w: Writer, mut tokens: Vec<String>, mut types: Vec<i32>) -> Tokenizer {
    types.resize(tokens.len(), 1);
    let bos = tokens.len() as u32;
    tokens.extend(SPECIAL.map(String::from));
    types.resize(tokens.len(), 3);
    w.strings("tokenizer.ggml.tokens", &tokens);
    w.i32s("tokenizer.ggml.token_type", &types);
    w.u32("tokenizer.ggml.bos_token_id", bos);
    w.u32("tokenizer.ggml.eos_token_id", bos + 2);
    let file = pollster::block_on(open(Source::memory("vocabulary", w.header()))).expect("a GGUF file");
    Tokenizer::from_metadata(&file.header.metadata).expect("a tokenizer")
}

/// GPT-2's character of a byte.
fn printable(byte: u8) -> char {
    let plain = |byte: u8| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    if plain(byte) {
        return char::from(byte);
    }
    let rank = (0..byte).filter(|other| !plain(*other)).count() as u32;
    char::from_u32(0x100 + rank).expect("below the surrogates")
}

/// A model whose logits are noise, with a liking for what ends strings, arrays, objects and texts.
pub(crate) struct RandomModel {
    liking: Vec<f32>,
    seed: u64,
}

impl RandomModel {
    pub(crate) fn new(tokenizer: &Tokenizer, seed: u64) -> Self {
        let liking = |id: u32| {
            let bytes = tokenizer.token_bytes(id);
            let has = |byte: u8| bytes.contains(&byte);
            match () {
                () if tokenizer.is_eog(id) => 6.0,
                () if has(b'}') || has(b']') => 4.0,
                () if has(b'"') || has(b',') => 3.0,
                () if bytes.iter().any(u8::is_ascii_whitespace) => -2.0,
                () => 0.0,
            }
        };
        let rows = tokenizer.n_vocab() + PADDING;
        Self { liking: (0..rows as u32).map(liking).collect(), seed }
    }

    /// The logits of a step.
    pub(crate) fn logits(&self, step: u32) -> Vec<f32> {
        let noise = |id: u32| 8.0 * uniform(random_word(self.seed, step, 77, id)) - 4.0;
        (0..).zip(&self.liking).map(|(id, liking)| liking + noise(id)).collect()
    }
}
