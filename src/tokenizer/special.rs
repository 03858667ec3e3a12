//! Special tokens: which ids begin and end a text, and where a text spells them out.

use super::vocab::{Attributes, Vocab};
use crate::error::Result;
use crate::gguf::Metadata;

/// Texts of tokens that end a turn. The first one present is the end of turn where the file names none.
const END_OF_TURN: [&str; 11] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<｜end▁of▁sentence｜>",
    "<end_of_utterance>",
];

/// Further texts of tokens that end generation.
const END_OF_GENERATION: [&str; 11] = [
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "</s>",
    "<|eom_id|>",
    "[EOS]",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "[e~[",
];

/// Padding, repository and file marks of code models: generation ends there, too. The key, then texts to look for.
const CODE_MARKS: [(&str, &[&str]); 3] = [
    ("tokenizer.ggml.fim_pad_token_id", &["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"]),
    ("tokenizer.ggml.fim_rep_token_id", &["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"]),
    ("tokenizer.ggml.fim_sep_token_id", &["<|file_sep|>"]),
];

/// Prefix, suffix and middle marks of code models: control tokens, whatever the file says.
const CODE_PARTS: [(&str, &[&str]); 3] = [
    (
        "tokenizer.ggml.fim_pre_token_id",
        &[
            "<|fim_prefix|>",
            "<fim-prefix>",
            "<fim_prefix>",
            "<｜fim▁begin｜>",
            "<PRE>",
            "▁<PRE>",
            "<|code_prefix|>",
            "<|prefix|>",
        ],
    ),
    (
        "tokenizer.ggml.fim_suf_token_id",
        &[
            "<|fim_suffix|>",
            "<fim-suffix>",
            "<fim_suffix>",
            "<｜fim▁hole｜>",
            "<SUF>",
            "▁<SUF>",
            "<|code_suffix|>",
            "<|suffix|>",
        ],
    ),
    (
        "tokenizer.ggml.fim_mid_token_id",
        &[
            "<|fim_middle|>",
            "<fim-middle>",
            "<fim_middle>",
            "<｜fim▁end｜>",
            "<MID>",
            "▁<MID>",
            "<|code_middle|>",
            "<|middle|>",
        ],
    ),
];

/// Marks inside a reply that are part of its text.
const SHOWN_MARKS: [&str; 4] = ["<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"];

/// An id of `metadata`, where it is in the vocabulary; else `fallback`, likewise.
pub(super) fn id_of(metadata: &Metadata, key: &str, vocab: &Vocab, fallback: Option<u32>) -> Result<Option<u32>> {
    let in_vocab = |id: &u32| (*id as usize) < vocab.len();
    let named = metadata.opt_u64(key)?.and_then(|id| u32::try_from(id).ok());
    Ok(named.filter(in_vocab).or(fallback.filter(in_vocab)))
}

/// All ids that end generation, ascending. Corrects the attributes of well-known tokens on the way.
pub(super) fn stop_ids(metadata: &Metadata, vocab: &mut Vocab, eos: Option<u32>) -> Result<Vec<u32>> {
    let mut stops = Vec::new();
    for (key, texts) in CODE_PARTS {
        find(metadata, vocab, key, texts)?;
    }
    for (key, texts) in CODE_MARKS {
        stops.extend(find(metadata, vocab, key, texts)?);
    }
    stops.extend(find(metadata, vocab, "tokenizer.ggml.eot_token_id", &END_OF_TURN)?);
    stops.extend(find(metadata, vocab, "tokenizer.ggml.eom_token_id", &["<|eom_id|>"])?);
    stops.extend(eos);
    for text in END_OF_TURN.iter().chain(&END_OF_GENERATION) {
        if let Some(id) = vocab.id(text.as_bytes()) {
            make_control(vocab, id);
            stops.push(id);
        }
    }
    for text in SHOWN_MARKS {
        if let Some(id) = vocab.id(text.as_bytes()) {
            vocab.set_attributes(id, Attributes::USER_DEFINED);
        }
    }
    spare_inner_marks(vocab, &mut stops);
    stops.sort_unstable();
    stops.dedup();
    Ok(stops)
}

/// The id that `key` names; else that of the first of `texts` in the vocabulary, which becomes a control token.
fn find(metadata: &Metadata, vocab: &mut Vocab, key: &str, texts: &[&str]) -> Result<Option<u32>> {
    if let Some(id) = id_of(metadata, key, vocab, None)? {
        return Ok(Some(id));
    }
    let found = texts.iter().find_map(|text| vocab.id(text.as_bytes()));
    if let Some(id) = found {
        make_control(vocab, id);
    }
    Ok(found)
}

fn make_control(vocab: &mut Vocab, id: u32) {
    vocab.set_attributes(id, vocab.attributes(id).with(Attributes::CONTROL));
}

/// Where `<|return|>` and `<|call|>` end replies, `<|end|>` only ends a part of one; where Gemma's `<|tool_response>`
/// does, `</s>` is plain text.
fn spare_inner_marks(vocab: &mut Vocab, stops: &mut Vec<u32>) {
    let has = |stops: &[u32], text: &str| vocab.id(text.as_bytes()).is_some_and(|id| stops.contains(&id));
    let call = has(stops, "<|call|>") || has(stops, "<|calls|>");
    let parts = call && (has(stops, "<|return|>") || has(stops, "<|flush|>"));
    let gemma = has(stops, "<|tool_response>");
    let spared = [(parts, "<|end|>", Attributes::USER_DEFINED), (gemma, "</s>", Attributes::NORMAL)];
    for (applies, text, attributes) in spared {
        if let Some(id) = vocab.id(text.as_bytes()).filter(|id| applies && stops.contains(id)) {
            vocab.set_attributes(id, attributes);
            stops.retain(|stop| *stop != id);
        }
    }
}

/// Phi-3's special tokens swallow the white space behind them.
pub(super) fn strip_right_of_phi3(metadata: &Metadata, vocab: &mut Vocab) -> Result<()> {
    let name = metadata.opt_str("general.name")?.unwrap_or("").to_ascii_lowercase();
    if !name.contains("phi-3") && !name.contains("phi3") {
        return Ok(());
    }
    for id in 0..vocab.len() as u32 {
        let (text, attributes) = (vocab.text(id), vocab.attributes(id));
        let kept = [&b"<unk>"[..], b"<s>", b"<|endoftext|>"].contains(&text);
        if (attributes.any(SPECIAL) || text == b"</s>") && !kept {
            vocab.set_attributes(id, attributes.with(Attributes::STRIP_RIGHT));
        }
    }
    Ok(())
}

const HIDDEN: Attributes = Attributes::CONTROL.with(Attributes::UNKNOWN);
const SPECIAL: Attributes = HIDDEN.with(Attributes::USER_DEFINED);

/// Whether a token is for the model only, not part of a reply's text.
pub(super) fn is_hidden(attributes: Attributes) -> bool {
    attributes.any(HIDDEN)
}

/// A stretch of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fragment<'a> {
    Text(&'a str),
    Token(u32),
}

/// Finds tokens that a text spells out: longer ones first, and of a length from left to right.
#[derive(Debug, Clone)]
pub(super) struct Finder {
    /// Lengths of special tokens in bytes, descending, with the set of first bytes.
    lengths: Vec<(usize, [bool; 256])>,
}

impl Finder {
    pub(super) fn new(vocab: &Vocab) -> Self {
        let mut lengths: Vec<(usize, [bool; 256])> = Vec::new();
        let special = |id: &u32| vocab.attributes(*id).any(SPECIAL);
        for text in (0..vocab.len() as u32).filter(special).map(|id| vocab.text(id)) {
            let Some(first) = text.first() else { continue };
            let at = lengths.partition_point(|(len, _)| *len > text.len());
            if lengths.get(at).is_none_or(|(len, _)| *len != text.len()) {
                lengths.insert(at, (text.len(), [false; 256]));
            }
            lengths[at].1[usize::from(*first)] = true;
        }
        Self { lengths }
    }

    /// Cuts `text`; without `hidden` only user-defined tokens are found.
    pub(super) fn cut<'a>(&self, vocab: &Vocab, text: &'a str, hidden: bool) -> Vec<Fragment<'a>> {
        let mut fragments = if text.is_empty() { vec![] } else { vec![Fragment::Text(text)] };
        for (len, first) in &self.lengths {
            if !fragments.iter().any(|f| matches!(f, Fragment::Text(t) if t.len() >= *len)) {
                continue;
            }
            let mut cut = Vec::with_capacity(fragments.len());
            for fragment in fragments {
                match fragment {
                    Fragment::Text(text) => cut_text(vocab, text, *len, first, hidden, &mut cut),
                    token => cut.push(token),
                }
            }
            fragments = cut;
        }
        fragments
    }
}

/// Cuts a text at the special tokens of `len` bytes.
fn cut_text<'a>(
    vocab: &Vocab,
    text: &'a str,
    len: usize,
    first: &[bool; 256],
    hidden: bool,
    out: &mut Vec<Fragment<'a>>,
) {
    let bytes = text.as_bytes();
    let (mut done, mut at) = (0, 0);
    while at + len <= bytes.len() {
        let token = first[usize::from(bytes[at])]
            .then(|| text.get(at..at + len))
            .flatten()
            .and_then(|spelled| vocab.id(spelled.as_bytes()))
            .map(|id| (id, vocab.attributes(id)))
            .filter(|(_, attributes)| attributes.any(SPECIAL) && (hidden || !is_hidden(*attributes)));
        let Some((id, attributes)) = token else {
            at += 1;
            continue;
        };
        if at > done {
            out.push(Fragment::Text(&text[done..at]));
        }
        out.push(Fragment::Token(id));
        at += len;
        while attributes.any(Attributes::STRIP_RIGHT) && bytes.get(at).is_some_and(|b| is_c_space(*b)) {
            at += 1;
        }
        done = at;
    }
    if done < text.len() {
        out.push(Fragment::Text(&text[done..]));
    }
}

fn is_c_space(byte: u8) -> bool {
    matches!(byte, b' ' | 0x09..=0x0d)
}
