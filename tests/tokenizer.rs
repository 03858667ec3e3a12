//! Token ids of real vocabularies against llama.cpp's.

mod common;

use std::path::{Path, PathBuf};

use blueshift::gguf::{Source, open};
use blueshift::tokenizer::{Decoder, Tokenizer};
use serde::Deserialize;

/// Written by `tools/golden_tokens.py`.
#[derive(Deserialize)]
struct Golden {
    model: String,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    text: String,
    /// Special tokens are plain text, nothing added.
    plain: Vec<u32>,
    /// Special tokens recognised, beginning and end of sequence added as the model wants.
    prompt: Vec<u32>,
}

fn tokenizer(path: &Path) -> Tokenizer {
    let file = pollster::block_on(open(Source::file(path).expect("the file opens"))).expect("a GGUF file");
    Tokenizer::from_metadata(&file.header.metadata).expect("a tokenizer")
}

fn check_golden(json: &str) {
    let golden: Golden = serde_json::from_str(json).expect("golden ids");
    let Some(path) = common::model(&golden.model) else { return };
    let tokenizer = tokenizer(&path);
    let mut wrong = Vec::new();
    for case in &golden.cases {
        for (kind, ids, expected) in [
            ("plain", tokenizer.encode(&case.text, false), &case.plain),
            ("prompt", tokenizer.encode_prompt(&case.text), &case.prompt),
        ] {
            if ids != *expected {
                wrong.push(format!("{kind} {:?}\n  got      {ids:?}\n  expected {expected:?}", case.text));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), golden.model, wrong.join("\n"));
}

#[test]
fn smollm2_gives_the_ids_of_llama_cpp() {
    check_golden(include_str!("data/tokenizer/smollm2.json"));
}

#[test]
fn gemma3_gives_the_ids_of_llama_cpp() {
    check_golden(include_str!("data/tokenizer/gemma3.json"));
}

/// Vocabulary files of llama.cpp (`ggml-vocab-*.gguf` with their `.inp` and `.out`, from its `models` folder), laid beside the models.
#[test]
#[ignore = "needs llama.cpp's ggml-vocab files beside the models"]
fn vocabulary_suites_of_llama_cpp() {
    let files = common::model_folders().into_iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten();
    let vocabs = files.flatten().map(|file| file.path()).filter(|path| path.to_string_lossy().ends_with(".gguf.inp"));
    let mut n_suites = 0;
    for inputs in vocabs {
        check_suite(&inputs.with_extension(""), &inputs);
        n_suites += 1;
    }
    assert!(n_suites > 0, "no ggml-vocab-*.gguf in {:?}", common::model_folders());
}

fn check_suite(gguf: &Path, inputs: &PathBuf) {
    let file = pollster::block_on(open(Source::file(gguf).expect("the file opens"))).expect("a GGUF file");
    if !matches!(file.header.metadata.str("tokenizer.ggml.model"), Ok("gpt2" | "llama" | "gemma4")) {
        println!("{} has another kind of tokenizer", gguf.display());
        return;
    }
    let tokenizer = Tokenizer::from_metadata(&file.header.metadata).expect("a tokenizer");
    let texts = std::fs::read_to_string(inputs).expect("inputs");
    let lines = std::fs::read_to_string(gguf.with_extension("gguf.out")).expect("outputs");
    for (text, line) in texts.split("\n__ggml_vocab_test__\n").zip(lines.lines()) {
        let expected: Vec<u32> = line.split_whitespace().map(|id| id.parse().expect("an id")).collect();
        assert_eq!(tokenizer.encode(text, false), expected, "{}: {text:?}", gguf.display());
    }
    println!("passed: {}", gguf.display());
}

#[test]
fn random_text_comes_back() {
    for name in ["SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-q4_k_m.gguf"] {
        let Some(path) = common::model(name) else { continue };
        let tokenizer = tokenizer(&path);
        let mut random = Random(7);
        // A vocabulary may lack bytes, and SentencePiece reads its own mark for blanks as one.
        let covered = |c: &char| tokenizer.decode(&tokenizer.encode(&c.to_string(), false)) == c.to_string();
        for _ in 0..500 {
            let text: String = random.text().chars().filter(covered).collect();
            for special in [false, true] {
                let ids = tokenizer.encode(&text, special);
                assert!(ids.iter().all(|id| (*id as usize) < tokenizer.n_vocab()));
                assert_eq!(tokenizer.decode(&tokenizer.encode(&text, false)), text);
                let mut decoder = Decoder::with_special();
                let mut back: String = ids.iter().map(|id| decoder.push(&tokenizer, *id)).collect();
                back += &decoder.finish();
                assert_eq!(back, text, "{ids:?}");
            }
        }
    }
}

/// Time grows with the text, not with its square: these would take hours otherwise.
#[test]
fn long_runs_encode_in_near_linear_time() {
    for name in ["SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-q4_k_m.gguf"] {
        let Some(path) = common::model(name) else { continue };
        let tokenizer = tokenizer(&path);
        for unit in ["a", " ", "\n", "é", "<", "ab c", "= ", " \n", "7", "\0"] {
            let text = unit.repeat(400_000 / unit.len());
            assert!(!tokenizer.encode(&text, true).is_empty());
        }
    }
}

/// A linear congruential generator of texts that mix scripts, white space, marks and any character at all.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(n)) as u32
    }

    fn text(&mut self) -> String {
        (0..self.below(60)).map(|_| self.character()).collect()
    }

    fn character(&mut self) -> char {
        let any = |code| char::from_u32(code).unwrap_or('\u{fffd}');
        match self.below(8) {
            0..=2 => any(0x20 + self.below(0x5f)),
            3 => [' ', '\n', '\t', '\r', '\u{a0}', '\u{3000}', '\u{2028}'][self.below(7) as usize],
            4 => any(0xa0 + self.below(0x1000)),
            5 => any(0x4e00 + self.below(0x5200)),
            6 => any(0x1f300 + self.below(0x400)),
            _ => any(self.below(0x11_0000)),
        }
    }
}
