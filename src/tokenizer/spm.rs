//! SentencePiece: neighbours merge into the token of the highest score, over the whole text.

use super::index::NONE;
use super::merge::Merger;
use super::vocab::{Spelling, Vocab};

/// What is needed beside the vocabulary.
#[derive(Debug, Clone)]
pub(super) struct Spm {
    /// Ids of the 256 byte tokens, `NONE` where one is missing.
    bytes: Vec<u32>,
    /// Stands for a byte that has no token; `NONE` leaves it out.
    unknown: u32,
    /// A blank is put before text at the start and after special tokens.
    pub(super) space_prefix: bool,
}

impl Spm {
    pub(super) fn new(vocab: &Vocab, unknown: Option<u32>, space_prefix: bool) -> Self {
        Self { bytes: vocab.byte_ids(Spelling::Plain), unknown: unknown.unwrap_or(NONE), space_prefix }
    }

    /// Appends the tokens of a text that holds no special tokens.
    pub(super) fn encode(&self, vocab: &Vocab, text: &str, after_special: bool, out: &mut Vec<u32>) {
        let prefix = if self.space_prefix && after_special { "▁" } else { "" };
        let text = prefix.to_owned() + &text.replace(' ', "▁");
        let bytes = text.as_bytes();
        let mut merger = Merger::default();
        for (at, c) in text.char_indices() {
            let len = c.len_utf8();
            merger.push(vocab.id(&bytes[at..at + len]).unwrap_or(NONE), len);
        }
        merger.run(|left, right| {
            let len = (left.len + right.len) as usize;
            let id = vocab.id(bytes.get(left.start as usize..)?.get(..len).filter(|_| len <= vocab.longest())?)?;
            Some((priority(vocab.score(id)), id))
        });
        for symbol in merger.merged() {
            if symbol.id != NONE {
                out.push(symbol.id);
                continue;
            }
            for byte in &bytes[symbol.start as usize..][..symbol.len as usize] {
                let id = self.bytes[usize::from(*byte)];
                out.extend([id, self.unknown].into_iter().find(|id| *id != NONE));
            }
        }
    }
}

/// Orders like the scores; -0.0 equals 0.0.
fn priority(score: f32) -> u32 {
    let bits = (score + 0.0).to_bits();
    if bits >> 31 == 0 { bits | 0x8000_0000 } else { !bits }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priority_orders_like_scores() {
        let scores = [f32::NEG_INFINITY, -1e30, -2.5, -1e-30, 0.0, 1e-30, 1.0, f32::MAX, f32::INFINITY];
        assert!(scores.windows(2).all(|w| priority(w[0]) < priority(w[1])));
        assert_eq!(priority(-0.0), priority(0.0));
    }
}
