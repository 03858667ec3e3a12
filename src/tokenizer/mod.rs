//! The vocabulary in a GGUF file: text to ids and back, exactly as llama.cpp does it.
//!
//! Two kinds of tokenizer, by `tokenizer.ggml.model`: byte-pair encoding with merges (`gpt2`, `gemma4`), whose text is
//! cut into words first as `tokenizer.ggml.pre` says, and SentencePiece with scores (`llama`).

mod alphabet;
mod bpe;
mod decoder;
mod index;
mod load;
mod merge;
mod special;
mod split;
mod spm;
#[cfg(test)]
mod tests;
mod vocab;

pub use decoder::Decoder;

use bpe::Bpe;
use special::{Finder, Fragment};
use spm::Spm;
use vocab::Vocab;

/// A tokenizer. Immutable; encoding takes time near-linear in the text.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    vocab: Vocab,
    algorithm: Algorithm,
    finder: Finder,
    bos: Option<u32>,
    eos: Option<u32>,
    add_bos: bool,
    add_eos: bool,
    /// Ascending.
    stop_ids: Vec<u32>,
}

#[derive(Debug, Clone)]
enum Algorithm {
    Bpe(Bpe),
    Spm(Spm),
}

impl Tokenizer {
    /// Ids of `text`, nothing added. With `special`, special tokens that the text spells out are recognised; without,
    /// they are plain text (tokens that the file calls user-defined are recognised always).
    pub fn encode(&self, text: &str, special: bool) -> Vec<u32> {
        self.encode_fragments(text, special, true)
    }

    /// Ids of `text` in the middle of other text: special tokens are plain text, and SentencePiece puts no blank in front.
    pub fn encode_continued(&self, text: &str) -> Vec<u32> {
        self.encode_fragments(text, false, false)
    }

    fn encode_fragments(&self, text: &str, special: bool, mut after_special: bool) -> Vec<u32> {
        let mut ids = Vec::new();
        for fragment in self.finder.cut(&self.vocab, text, special) {
            match (fragment, &self.algorithm) {
                (Fragment::Token(id), _) => ids.push(id),
                (Fragment::Text(text), Algorithm::Bpe(bpe)) => bpe.encode(&self.vocab, text, &mut ids),
                (Fragment::Text(text), Algorithm::Spm(spm)) => spm.encode(&self.vocab, text, after_special, &mut ids),
            }
            after_special = matches!(fragment, Fragment::Token(_));
        }
        ids
    }

    /// Ids of a raw prompt: special tokens recognised, beginning and end of sequence added where the model wants them.
    /// A prompt that already spells one out gets a second one, as in llama.cpp.
    pub fn encode_prompt(&self, text: &str) -> Vec<u32> {
        let bos = self.bos.filter(|_| self.add_bos);
        let eos = self.eos.filter(|_| self.add_eos);
        bos.into_iter().chain(self.encode(text, true)).chain(eos).collect()
    }

    /// Ids of a chat template's rendering: special tokens recognised; the beginning of sequence is added where the model
    /// wants it and the template has not written it.
    pub fn encode_chat(&self, rendered: &str) -> Vec<u32> {
        let ids = self.encode(rendered, true);
        let bos = self.bos.filter(|bos| self.add_bos && ids.first() != Some(bos));
        bos.into_iter().chain(ids).collect()
    }

    /// Text of `ids`, control tokens left out; bytes that are not UTF-8 become U+FFFD. The blank that SentencePiece
    /// puts in front of a text is taken away again.
    pub fn decode(&self, ids: &[u32]) -> String {
        let shown = ids.iter().filter(|id| !self.is_control(**id));
        let bytes: Vec<u8> = shown.flat_map(|id| self.token_bytes(*id)).copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let prefixed = matches!(&self.algorithm, Algorithm::Spm(spm) if spm.space_prefix);
        text.strip_prefix(' ').filter(|_| prefixed).unwrap_or(&text).to_owned()
    }

    /// The bytes a token stands for, which need not be whole characters; a special token's are its spelling. Empty for
    /// unused tokens and ids outside the vocabulary.
    pub fn token_bytes(&self, id: u32) -> &[u8] {
        self.vocab.piece(id)
    }

    /// The token that the file spells `text`, for example `<think>`.
    pub fn token_id(&self, text: &str) -> Option<u32> {
        self.vocab.id(text.as_bytes())
    }

    /// Whether a token is for the model only, not text.
    pub fn is_control(&self, id: u32) -> bool {
        special::is_hidden(self.vocab.attributes(id))
    }

    /// Number of tokens. A model's output may have more rows.
    pub fn n_vocab(&self) -> usize {
        self.vocab.len()
    }

    /// The beginning of sequence.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The end of sequence.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// Whether `encode_prompt` puts the beginning of sequence first.
    pub fn adds_bos(&self) -> bool {
        self.add_bos && self.bos.is_some()
    }

    /// Whether `id` ends generation.
    pub fn is_eog(&self, id: u32) -> bool {
        self.stop_ids.binary_search(&id).is_ok()
    }

    /// All ids that end generation, ascending.
    pub fn stop_ids(&self) -> &[u32] {
        &self.stop_ids
    }
}
