//! A tokenizer from a file's metadata.

use super::bpe::Bpe;
use super::special::{self, Finder};
use super::split;
use super::spm::Spm;
use super::vocab::{Attributes, Spelling, Vocab};
use super::{Algorithm, Tokenizer};
use crate::error::{Error, Result};
use crate::gguf::{Array, Metadata};

const MODEL: &str = "tokenizer.ggml.model";
const TOKENS: &str = "tokenizer.ggml.tokens";
const SCORES: &str = "tokenizer.ggml.scores";
const TYPES: &str = "tokenizer.ggml.token_type";
const MERGES: &str = "tokenizer.ggml.merges";

/// What `tokenizer.ggml.model` decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Gpt2,
    Gemma4,
    SentencePiece,
}

impl Tokenizer {
    /// Builds the tokenizer of a file.
    ///
    /// # Errors
    /// `MissingKey`, `BadValue` for lists of the wrong type; `Tokenizer` for a model or a pre-tokenizer that is not
    /// supported and for lists whose lengths disagree.
    pub fn from_metadata(metadata: &Metadata) -> Result<Self> {
        let kind = kind(metadata)?;
        let mut vocab = vocabulary(metadata)?;
        let default = |id: u32| (kind != Kind::Gemma4).then_some(id);
        let (bos, eos) = if kind == Kind::SentencePiece { (1, 2) } else { (11, 11) };
        let bos =
            special::id_of(metadata, "tokenizer.ggml.bos_token_id", &vocab, default_bos(metadata, default(bos))?)?;
        let eos = special::id_of(metadata, "tokenizer.ggml.eos_token_id", &vocab, default(eos))?;
        let stop_ids = special::stop_ids(metadata, &mut vocab, eos)?;
        special::strip_right_of_phi3(metadata, &mut vocab)?;
        let (algorithm, spelling, add_bos) = algorithm(metadata, kind, &vocab)?;
        vocab.spell(spelling);
        let always_bos = kind == Kind::Gemma4;
        Ok(Self {
            finder: Finder::new(&vocab),
            vocab,
            algorithm,
            bos,
            eos,
            add_bos: always_bos || metadata.opt_bool("tokenizer.ggml.add_bos_token")?.unwrap_or(add_bos),
            add_eos: metadata.opt_bool("tokenizer.ggml.add_eos_token")?.unwrap_or(false),
            stop_ids,
        })
    }
}

fn kind(metadata: &Metadata) -> Result<Kind> {
    match metadata.str(MODEL)? {
        "gpt2" => Ok(Kind::Gpt2),
        "gemma4" => Ok(Kind::Gemma4),
        "llama" => Ok(Kind::SentencePiece),
        other => invalid(format!("{MODEL} is {other:?}, expected one of gpt2, llama, gemma4")),
    }
}

/// GLM's vocabularies have no beginning of sequence unless the file names one.
fn default_bos(metadata: &Metadata, default: Option<u32>) -> Result<Option<u32>> {
    let pre = metadata.opt_str("tokenizer.ggml.pre")?;
    Ok(default.filter(|_| !matches!(pre, Some("chatglm-bpe" | "glm4" | "glm5"))))
}

fn vocabulary(metadata: &Metadata) -> Result<Vocab> {
    let n = metadata.array(TOKENS)?.len;
    if n == 0 || n >= u32::MAX as usize / 2 {
        return invalid(format!("{TOKENS} has {n} entries, expected 1 to 2^31 - 2"));
    }
    let types = match metadata.opt_array(TYPES)? {
        Some(array) => integers(TYPES, array)?.map(Attributes::from_gguf).collect(),
        None => vec![Attributes::NORMAL; n],
    };
    let scores = match metadata.opt_array(SCORES)? {
        Some(array) => floats(array)?,
        None => Vec::new(),
    };
    for (key, len) in [(TYPES, types.len()), (SCORES, scores.len())] {
        if len < n && !(key == SCORES && len == 0) {
            return invalid(format!("{key} has {len} entries, expected one for each of the {n} tokens"));
        }
    }
    let types = types.into_iter().take(n).collect();
    Ok(Vocab::new(metadata.byte_strings(TOKENS)?, types, scores))
}

fn integers<'a>(key: &str, array: &'a Array) -> Result<impl Iterator<Item = i32> + use<'a>> {
    array.i32s().ok_or_else(|| bad_array(key, array, "an array of 32-bit integers"))
}

fn floats(array: &Array) -> Result<Vec<f32>> {
    if let Some(floats) = array.f32s() {
        return Ok(floats.collect());
    }
    match array.i32s() {
        Some(integers) => Ok(integers.map(|v| v as f32).collect()),
        None => Err(bad_array(SCORES, array, "an array of floats")),
    }
}

/// The algorithm, how its tokens are spelled, and whether it begins with the beginning of sequence by default.
fn algorithm(metadata: &Metadata, kind: Kind, vocab: &Vocab) -> Result<(Algorithm, Spelling, bool)> {
    if kind == Kind::SentencePiece {
        let unknown = special::id_of(metadata, "tokenizer.ggml.unknown_token_id", vocab, Some(0))?;
        let prefix = metadata.opt_bool("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
        return Ok((Algorithm::Spm(Spm::new(vocab, unknown, prefix)), Spelling::Plain, true));
    }
    let name = if kind == Kind::Gemma4 { "gemma4" } else { metadata.opt_str("tokenizer.ggml.pre")?.unwrap_or("") };
    let pre = split::by_name(name)?;
    let merges = metadata.array(MERGES)?;
    let bpe = Bpe::new(vocab, pre, metadata.byte_strings(MERGES)?, merges.len);
    let spelling = if pre.byte_level { Spelling::ByteLevel } else { Spelling::Plain };
    Ok((Algorithm::Bpe(bpe), spelling, pre.add_bos))
}

fn bad_array(key: &str, array: &Array, expected: &str) -> Error {
    Error::BadValue { key: key.into(), found: array.describe(), expected: expected.into() }
}

fn invalid<T>(reason: String) -> Result<T> {
    Err(Error::Tokenizer { reason })
}
