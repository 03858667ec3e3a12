//! The vocabulary: each token's text, the bytes it stands for, its attributes, and the way from text to id.

use super::alphabet;
use super::index::{Index, NONE, hash_bytes};

/// What the file says a token is, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Attributes(u8);

impl Attributes {
    pub(super) const NORMAL: Self = Self(1);
    pub(super) const UNKNOWN: Self = Self(2);
    pub(super) const CONTROL: Self = Self(4);
    pub(super) const USER_DEFINED: Self = Self(8);
    pub(super) const UNUSED: Self = Self(16);
    pub(super) const BYTE: Self = Self(32);
    /// White space after the token belongs to it.
    pub(super) const STRIP_RIGHT: Self = Self(64);

    /// From GGUF's `tokenizer.ggml.token_type`.
    pub(super) fn from_gguf(code: i32) -> Self {
        match code {
            1 => Self::NORMAL,
            2 => Self::UNKNOWN,
            3 => Self::CONTROL,
            4 => Self::USER_DEFINED,
            5 => Self::UNUSED,
            6 => Self::BYTE,
            _ => Self(0),
        }
    }

    /// Whether any bit of `other` is set.
    pub(super) fn any(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(super) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// How a normal token's text stands for bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spelling {
    /// GPT-2's alphabet.
    ByteLevel,
    /// Plain text, `▁` for blanks.
    Plain,
}

/// Byte strings end to end.
#[derive(Debug, Clone, Default)]
struct Arena {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Arena {
    fn push(&mut self, string: &[u8]) {
        self.bytes.extend_from_slice(string);
        self.ends.push(self.bytes.len() as u32);
    }

    fn get(&self, i: u32) -> &[u8] {
        let i = i as usize;
        let Some(end) = self.ends.get(i) else { return &[] };
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.bytes[start as usize..*end as usize]
    }
}

/// All tokens.
#[derive(Debug, Clone)]
pub(super) struct Vocab {
    texts: Arena,
    pieces: Arena,
    attributes: Vec<Attributes>,
    /// One a token where the file has them, else none.
    scores: Vec<f32>,
    index: Index,
    longest: usize,
}

impl Vocab {
    /// From every token's text; equal texts lead to the last of them.
    pub(super) fn new<'a>(
        texts: impl Iterator<Item = &'a [u8]>,
        attributes: Vec<Attributes>,
        scores: Vec<f32>,
    ) -> Self {
        let mut vocab = Self {
            texts: Arena::default(),
            pieces: Arena::default(),
            index: Index::with_capacity(attributes.len()),
            attributes,
            scores,
            longest: 0,
        };
        for (id, text) in texts.take(vocab.attributes.len()).enumerate() {
            let unnamed = format!("[EMPTY_{id}]");
            let text = if text.is_empty() { unnamed.as_bytes() } else { text };
            vocab.texts.push(text);
            vocab.longest = vocab.longest.max(text.len());
            let all = &vocab.texts;
            vocab.index.insert(hash_bytes(text), id as u32, |other| all.get(other) == text);
        }
        vocab
    }

    /// Works out the bytes that tokens stand for; to be called once their attributes are final.
    pub(super) fn spell(&mut self, spelling: Spelling) {
        let mut pieces = Arena::default();
        for id in 0..self.len() as u32 {
            let (text, attributes) = (self.texts.get(id), self.attributes(id));
            if attributes.any(SHOWN_AS_TEXT) {
                pieces.push(text);
            } else if attributes.any(Attributes::NORMAL) {
                pieces.push(&spelled(text, spelling));
            } else if let Some(byte) = byte_token(text).filter(|_| attributes.any(Attributes::BYTE)) {
                pieces.push(&[byte]);
            } else {
                pieces.push(&[]);
            }
        }
        self.pieces = pieces;
    }

    pub(super) fn len(&self) -> usize {
        self.attributes.len()
    }

    /// Length in bytes of the longest token's text.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// The token whose text is `text`.
    pub(super) fn id(&self, text: &[u8]) -> Option<u32> {
        self.index.find(hash_bytes(text), |id| self.texts.get(id) == text)
    }

    /// The text of a token as the file spells it; empty for an id outside the vocabulary.
    pub(super) fn text(&self, id: u32) -> &[u8] {
        self.texts.get(id)
    }

    /// The bytes a token stands for; empty for an id outside the vocabulary.
    pub(super) fn piece(&self, id: u32) -> &[u8] {
        self.pieces.get(id)
    }

    pub(super) fn attributes(&self, id: u32) -> Attributes {
        self.attributes.get(id as usize).copied().unwrap_or_default()
    }

    pub(super) fn set_attributes(&mut self, id: u32, attributes: Attributes) {
        if let Some(place) = self.attributes.get_mut(id as usize) {
            *place = attributes;
        }
    }

    pub(super) fn score(&self, id: u32) -> f32 {
        self.scores.get(id as usize).copied().unwrap_or(0.0)
    }

    /// The ids of the 256 byte tokens, `NONE` where one is missing.
    pub(super) fn byte_ids(&self, spelling: Spelling) -> Vec<u32> {
        let id = |byte: u8| match spelling {
            Spelling::ByteLevel => self.id(alphabet::char_of(byte).encode_utf8(&mut [0; 4]).as_bytes()),
            Spelling::Plain => self.id(format!("<0x{byte:02X}>").as_bytes()).or_else(|| self.id(&[byte])),
        };
        (0..=255).map(|byte| id(byte).unwrap_or(NONE)).collect()
    }
}

const SHOWN_AS_TEXT: Attributes = Attributes::UNKNOWN.with(Attributes::CONTROL).with(Attributes::USER_DEFINED);

/// The bytes that a normal token's text stands for.
fn spelled(text: &[u8], spelling: Spelling) -> Vec<u8> {
    match (std::str::from_utf8(text), spelling) {
        (Ok(text), Spelling::ByteLevel) => alphabet::decode(text),
        (Ok(text), Spelling::Plain) => text.replace('▁', " ").into_bytes(),
        (Err(_), _) => text.to_vec(),
    }
}

/// The byte of `<0xNN>`.
fn byte_token(text: &[u8]) -> Option<u8> {
    let hex = text.strip_prefix(b"<0x")?.strip_suffix(b">")?;
    u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()
}
