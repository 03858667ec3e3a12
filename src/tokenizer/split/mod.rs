//! Pre-tokenizers: how a byte-pair tokenizer's text is cut into words before merging.
//!
//! `tokenizer.ggml.pre` names one. Each is a list of stages; a stage cuts every piece the stage before left. What a
//! stage does not match stays together as a piece of its own.

mod chars;
mod rules;
mod sets;
mod table;

use chars::Char;
use rules::{Letters, Tail, Words, run};
use sets::Set;

use crate::error::{Error, Result};

/// One cut.
#[derive(Debug, Clone, Copy)]
enum Stage {
    /// GPT-2's alternation.
    Gpt2,
    /// The family of Llama 3.
    Words(Words),
    /// DeepSeek 3's alternation.
    Deepseek3,
    /// Groups of at most so many characters of a set.
    Groups(usize, Set),
    /// Groups of exactly three ASCII digits.
    ThreeDigits,
    /// Runs of a set behind at most one character of white space.
    SpaceRun(Set),
    /// Runs of a set behind at most one blank.
    BlankRun(Set),
    /// White space at the piece's end.
    EndSpace,
    /// Runs of line feeds, and what is between them.
    Lines,
}

const LLAMA3: Words = Words { contractions: true, letters: Letters::Plain, digits: 3, tail: Tail::Newlines };
const QWEN2: Words = Words { digits: 1, ..LLAMA3 };
const QWEN35: Words = Words { letters: Letters::Marked, ..QWEN2 };
const TEKKEN: Words = Words { contractions: false, letters: Letters::Cased, digits: 1, tail: Tail::NewlinesAndSlashes };
const GPT4O: Words = Words { letters: Letters::CasedContracted, digits: 3, ..TEKKEN };

const RUN: usize = usize::MAX;

/// A pre-tokenizer and the tokenizer's habits that come with its name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pre {
    stages: &'static [Stage],
    /// A word that is a token is taken whole, whatever the merges say.
    pub(super) ignore_merges: bool,
    /// Whether the beginning of sequence is added where the file does not say.
    pub(super) add_bos: bool,
    /// The GPT-2 alphabet stands for bytes; otherwise tokens are plain text with `▁` for blanks.
    pub(super) byte_level: bool,
}

const fn pre(stages: &'static [Stage]) -> Pre {
    Pre { stages, ignore_merges: false, add_bos: false, byte_level: true }
}

/// The pre-tokenizer called `name`.
///
/// # Errors
/// `Tokenizer`, naming it, where there is none of that name.
pub(super) fn by_name(name: &str) -> Result<Pre> {
    use Stage::*;
    let whole_words = |stages| Pre { ignore_merges: true, ..pre(stages) };
    Ok(match name {
        "" | "default" => pre(&[Groups(RUN, sets::signs), Gpt2, Groups(RUN, sets::number), ThreeDigits]),
        "gpt-2" | "phi-2" | "gigachat" | "a.x-4.0" | "mellum" | "mpt" | "olmo" | "jais" | "trillion" | "exaone4"
        | "granite-docling" => pre(&[Gpt2]),
        "smollm" | "starcoder" | "refact" | "command-r" | "codeshell" | "exaone" | "minerva-7b" | "mellum2" => {
            pre(&[Groups(1, sets::number), Gpt2])
        }
        "llama3" | "llama-v3" | "llama-bpe" | "falcon3" | "falcon-h1" | "pixtral" | "midm-2.0" | "lfm2" => {
            Pre { add_bos: true, ..whole_words(&[Words(LLAMA3)]) }
        }
        "dbrx" | "smaug-bpe" | "chatglm-bpe" => pre(&[Words(LLAMA3)]),
        "glm4" | "glm5" => whole_words(&[Words(LLAMA3)]),
        "qwen2" | "deepseek-r1-qwen" | "kormo" | "megrez" | "stablelm2" | "hunyuan" | "solar-open" | "grok-2"
        | "bailingmoe" | "bailingmoe2" | "llada-moe" => pre(&[Words(QWEN2)]),
        "qwen35" => pre(&[Words(QWEN35)]),
        "laguna" => pre(&[Lines, Words(QWEN2)]),
        "seed-coder" => pre(&[Words(rules::Words { tail: Tail::Nothing, ..QWEN2 })]),
        "minicpm5" => whole_words(&[Groups(3, sets::number), Words(rules::Words { digits: RUN, ..LLAMA3 })]),
        "tekken" => Pre { add_bos: true, ..whole_words(&[Words(TEKKEN)]) },
        "gpt-4o" | "llama4" | "kanana2" | "minimax-m2" => pre(&[Words(GPT4O)]),
        "deepseek-llm" => pre(&[
            Groups(1, sets::newline),
            SpaceRun(sets::cased_letter),
            SpaceRun(sets::deepseek_signs),
            EndSpace,
            Groups(RUN, sets::east_asian),
            Groups(RUN, sets::number),
        ]),
        "deepseek-coder" => pre(&[
            Groups(1, sets::newline),
            SpaceRun(sets::letter),
            SpaceRun(sets::punctuation),
            Groups(RUN, sets::east_asian),
            Groups(1, sets::number),
        ]),
        "deepseek-v3" | "hunyuan-dense" | "joyai-llm" | "hy_v4" => {
            pre(&[Groups(3, sets::number), Groups(RUN, sets::han_and_kana), Deepseek3])
        }
        "falcon" => pre(&[Groups(RUN, sets::signs_and_grave), Gpt2, ThreeDigits]),
        "poro-chat" | "bloom" | "gpt3-finnish" => pre(&[BlankRun(sets::bloom_word)]),
        "viking" => pre(&[BlankRun(sets::bloom_word), Groups(1, sets::number)]),
        "gemma4" => Pre { add_bos: true, byte_level: false, ..pre(&[Lines]) },
        unknown => {
            let reason = format!("the pre-tokenizer (tokenizer.ggml.pre) {unknown:?} is not supported");
            return Err(Error::Tokenizer { reason });
        }
    })
}

impl Pre {
    /// Calls `word` with each word of `text`, in order; together they are the text.
    pub(super) fn split<'a>(&self, text: &'a str, mut word: impl FnMut(&'a str)) {
        let chars: Vec<Char> = text.chars().map(Char::from).collect();
        let mut pieces = vec![chars.len()];
        for stage in self.stages {
            pieces = stage.cut(&chars, &pieces);
        }
        let (mut at, mut byte) = (0, 0);
        for len in pieces {
            let bytes: usize = chars[at..at + len].iter().map(|c| c.len_utf8()).sum();
            word(&text[byte..byte + bytes]);
            at += len;
            byte += bytes;
        }
    }
}

impl Stage {
    /// Cuts each piece, given and returned as lengths in characters.
    fn cut(&self, chars: &[Char], pieces: &[usize]) -> Vec<usize> {
        let mut out = Vec::with_capacity(pieces.len());
        let mut start = 0;
        for len in pieces {
            self.cut_piece(&chars[start..start + len], &mut out);
            start += len;
        }
        out
    }

    fn cut_piece(&self, piece: &[Char], out: &mut Vec<usize>) {
        if let Self::EndSpace = self {
            let head = piece.iter().rposition(|c| !sets::space(*c)).map_or(0, |i| i + 1);
            out.extend([head, piece.len() - head].iter().filter(|len| **len > 0));
            return;
        }
        let (mut done, mut at) = (0, 0);
        while at < piece.len() {
            let len = self.len_at(piece, at);
            if len == 0 {
                at += 1;
                continue;
            }
            if at > done {
                out.push(at - done);
            }
            out.push(len);
            at += len;
            done = at;
        }
        if at > done {
            out.push(at - done);
        }
    }

    /// Length of the match at `at`, 0 for none.
    fn len_at(&self, piece: &[Char], at: usize) -> usize {
        match *self {
            Self::Gpt2 => rules::gpt2(piece, at),
            Self::Words(words) => words.len(piece, at),
            Self::Deepseek3 => rules::deepseek3(piece, at),
            Self::Groups(most, set) => run(piece, at, most, set),
            Self::ThreeDigits => match run(piece, at, 3, sets::digit) {
                3 => 3,
                _ => 0,
            },
            Self::SpaceRun(set) => run_behind(piece, at, sets::space, set),
            Self::BlankRun(set) => run_behind(piece, at, |c| c.is(' '), set),
            Self::Lines => {
                let feed = piece[at].is('\n');
                run(piece, at, RUN, |c| c.is('\n') == feed)
            }
            // Cut from the end, not at a position.
            Self::EndSpace => 0,
        }
    }
}

/// A run of `set` behind at most one character of `before`.
fn run_behind(piece: &[Char], at: usize, before: Set, set: Set) -> usize {
    if before(piece[at]) {
        match run(piece, at + 1, RUN, set) {
            0 => 0,
            n => n + 1,
        }
    } else {
        run(piece, at, RUN, set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words<'a>(name: &str, text: &'a str) -> Vec<&'a str> {
        let mut out = Vec::new();
        by_name(name).expect("a known name").split(text, |word| out.push(word));
        out
    }

    #[test]
    fn words_of_each_family() {
        let cases: [(&str, &str, &[&str]); 19] = [
            ("gpt-2", "I'll  go, 123!\n\n x", &["I", "'ll", " ", " go", ",", " 123", "!", "\n\n", " x"]),
            ("gpt-2", "it'S  ", &["it", "'", "S", "  "]),
            ("smollm", "a 12b", &["a", " ", "1", "2", "b"]),
            ("llama-bpe", "I'LL go, 1234!\n\n x", &["I", "'LL", " go", ",", " ", "123", "4", "!\n\n", " x"]),
            ("llama-bpe", "a \t\n  b", &["a", " \t\n", " ", " b"]),
            ("llama-bpe", "(x)", &["(x", ")"]),
            ("qwen2", "12", &["1", "2"]),
            ("qwen2", "e\u{301}a", &["e", "\u{301}a"]),
            ("qwen35", "e\u{301}a", &["e\u{301}a"]),
            ("tekken", "camelCase XMLFile ÉAB a/\n/b", &["camel", "Case", " XMLFile", " É", "AB", " a", "/\n/", "b"]),
            ("gpt-4o", "It's", &["It's"]),
            ("deepseek-llm", "ab 12中文  ", &["ab", " ", "12", "中文", "  "]),
            ("deepseek-v3", "x.abc 1234?\n你好", &["x", ".abc", " ", "123", "4", "?\n", "你好"]),
            ("falcon", "a=1234", &["a", "=", "123", "4"]),
            ("default", "a 1234", &["a", " ", "123", "4"]),
            ("poro-chat", "a b,c", &["a", " b", ",", "c"]),
            ("gemma4", "a b\n\nc", &["a b", "\n\n", "c"]),
            ("deepseek-coder", "x\r\n y", &["x", "\r", "\n", " y"]),
            ("llama-bpe", "", &[]),
        ];
        for (name, text, expected) in cases {
            assert_eq!(words(name, text), expected, "{name}: {text:?}");
        }
    }

    #[test]
    fn an_unknown_name_is_named() {
        let error = by_name("nonesuch").expect_err("not a pre-tokenizer");
        assert!(error.to_string().contains("\"nonesuch\""), "{error}");
    }
}
