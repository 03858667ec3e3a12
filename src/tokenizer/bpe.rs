//! Byte-pair encoding: merges in the order they were learnt, within words.

use std::collections::HashMap;

use super::alphabet;
use super::index::{Index, NONE, hash_pair};
use super::merge::Merger;
use super::split::Pre;
use super::vocab::{Spelling, Vocab};

/// The merges and what a text's characters start as.
#[derive(Debug, Clone)]
pub(super) struct Bpe {
    pre: Pre,
    merges: Merges,
    /// Ids of the 256 bytes: the alphabet's characters, or the `<0xNN>` tokens of plain spelling.
    bytes: Vec<u32>,
}

/// Pairs of ids by rank. Ids from `n_vocab` on stand for texts that merges mention and the vocabulary lacks.
#[derive(Debug, Clone)]
struct Merges {
    pairs: Vec<(u32, u32)>,
    results: Vec<u32>,
    index: Index,
    extra: HashMap<Vec<u8>, u32>,
    n_vocab: u32,
}

impl Merges {
    fn new<'a>(vocab: &Vocab, lines: impl Iterator<Item = &'a [u8]>, n_lines: usize) -> Self {
        let mut merges = Self {
            pairs: Vec::with_capacity(n_lines),
            results: Vec::with_capacity(n_lines),
            index: Index::with_capacity(n_lines),
            extra: HashMap::new(),
            n_vocab: vocab.len() as u32,
        };
        for line in lines.take(n_lines) {
            // The first byte may itself be the blank.
            let Some(blank) = line.iter().skip(1).position(|b| *b == b' ') else { continue };
            let (left, right) = (&line[..blank + 1], &line[blank + 2..]);
            let pair = (merges.intern(vocab, left), merges.intern(vocab, right));
            if merges.rank(pair.0, pair.1).is_none() {
                let result = merges.intern(vocab, &[left, right].concat());
                merges.add(pair, result);
            }
        }
        merges
    }

    fn add(&mut self, pair: (u32, u32), result: u32) {
        let rank = self.pairs.len() as u32;
        self.pairs.push(pair);
        self.results.push(result);
        self.index.insert(hash_pair(pair.0, pair.1), rank, |_| false);
    }

    fn rank(&self, left: u32, right: u32) -> Option<u32> {
        self.index.find(hash_pair(left, right), |rank| self.pairs[rank as usize] == (left, right))
    }

    /// The id of `text`, or `NONE`.
    fn id(&self, vocab: &Vocab, text: &[u8]) -> u32 {
        vocab.id(text).or_else(|| self.extra.get(text).copied()).unwrap_or(NONE)
    }

    fn intern(&mut self, vocab: &Vocab, text: &[u8]) -> u32 {
        match self.id(vocab, text) {
            NONE => {
                let id = self.n_vocab + self.extra.len() as u32;
                self.extra.insert(text.to_vec(), id);
                id
            }
            id => id,
        }
    }

    /// The text of an id from `n_vocab` on.
    fn extra_text(&self, id: u32) -> &[u8] {
        self.extra.iter().find(|(_, extra)| **extra == id).map_or(&[], |(text, _)| text)
    }
}

impl Bpe {
    /// `lines` are the file's merges, `left right` each, `n_lines` of them.
    pub(super) fn new<'a>(vocab: &Vocab, pre: Pre, lines: impl Iterator<Item = &'a [u8]>, n_lines: usize) -> Self {
        let merges = Merges::new(vocab, lines, n_lines);
        let bytes = if pre.byte_level {
            let id = |byte| merges.id(vocab, alphabet::char_of(byte).encode_utf8(&mut [0; 4]).as_bytes());
            (0..=255).map(id).collect()
        } else {
            vocab.byte_ids(Spelling::Plain)
        };
        Self { pre, merges, bytes }
    }

    /// Appends the tokens of a text that holds no special tokens.
    pub(super) fn encode(&self, vocab: &Vocab, text: &str, out: &mut Vec<u32>) {
        let mut merger = Merger::default();
        if self.pre.byte_level {
            self.pre.split(text, |word| self.encode_byte_level(vocab, word, &mut merger, out));
        } else {
            self.pre.split(&text.replace(' ', "▁"), |word| self.encode_plain(vocab, word, &mut merger, out));
        }
    }

    fn encode_byte_level(&self, vocab: &Vocab, word: &str, merger: &mut Merger, out: &mut Vec<u32>) {
        if self.pre.ignore_merges {
            let spelled: String = word.bytes().map(alphabet::char_of).collect();
            if let Some(id) = vocab.id(spelled.as_bytes()) {
                out.push(id);
                return;
            }
        }
        merger.clear();
        word.bytes().for_each(|byte| merger.push(self.bytes[usize::from(byte)], 1));
        self.merge(merger);
        for symbol in merger.merged() {
            if symbol.id < self.merges.n_vocab {
                out.push(symbol.id);
            } else {
                // No token: the ASCII characters of its spelling may be.
                let text = self.merges.extra_text(symbol.id);
                out.extend(text.iter().filter_map(|byte| vocab.id(&[*byte])));
            }
        }
    }

    fn encode_plain(&self, vocab: &Vocab, word: &str, merger: &mut Merger, out: &mut Vec<u32>) {
        let only_newlines = word.bytes().all(|b| b == b'\n');
        if let Some(id) = vocab.id(word.as_bytes()).filter(|_| only_newlines) {
            out.push(id);
            return;
        }
        merger.clear();
        for (at, c) in word.char_indices() {
            let text = &word[at..at + c.len_utf8()];
            merger.push(self.merges.id(vocab, text.as_bytes()), text.len());
        }
        self.merge(merger);
        for symbol in merger.merged() {
            if symbol.id < self.merges.n_vocab {
                out.push(symbol.id);
            } else {
                let text = &word.as_bytes()[symbol.start as usize..][..symbol.len as usize];
                out.extend(text.iter().map(|byte| self.bytes[usize::from(*byte)]).filter(|id| *id != NONE));
            }
        }
    }

    fn merge(&self, merger: &mut Merger) {
        merger.run(|left, right| {
            let rank = self.merges.rank(left.id, right.id)?;
            Some((u32::MAX - rank, self.merges.results[rank as usize]))
        });
    }
}
