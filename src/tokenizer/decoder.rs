//! Tokens to text as they come: never half a character.

use super::Tokenizer;

/// Turns a stream of ids into text. Bytes of a character that is not complete yet are kept back; sequences that can
/// never become a character are replaced by U+FFFD.
#[derive(Debug, Clone, Default)]
pub struct Decoder {
    pending: Vec<u8>,
    shown: Shown,
}

/// Control tokens whose text is shown.
#[derive(Debug, Clone, Default)]
enum Shown {
    #[default]
    None,
    All,
    /// Ascending.
    Some(Vec<u32>),
}

impl Decoder {
    /// A decoder that leaves control tokens out.
    pub fn new() -> Self {
        Self::default()
    }

    /// A decoder that shows control tokens as the file spells them.
    pub fn with_special() -> Self {
        Self { shown: Shown::All, ..Self::default() }
    }

    /// A decoder that shows the control tokens among `ids` and no others: the marks that a
    /// [parser of answers](crate::chat::tools::AnswerParser) looks for.
    pub fn showing(mut ids: Vec<u32>) -> Self {
        ids.sort_unstable();
        Self { shown: Shown::Some(ids), ..Self::default() }
    }

    /// The text that has become complete with `id`; ids outside the vocabulary add nothing.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32) -> String {
        let shown = match &self.shown {
            Shown::None => false,
            Shown::All => true,
            Shown::Some(ids) => ids.binary_search(&id).is_ok(),
        };
        if !shown && tokenizer.is_control(id) {
            return String::new();
        }
        self.push_bytes(tokenizer.token_bytes(id))
    }

    /// The text that has become complete with `bytes`.
    pub fn push_bytes(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let (text, incomplete) = complete(&self.pending);
        self.pending.drain(..self.pending.len() - incomplete);
        text
    }

    /// What is left at the end: U+FFFD for a character that never became complete.
    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned()
    }
}

/// The text of `bytes` and the number of bytes at the end that may yet become a character.
fn complete(bytes: &[u8]) -> (String, usize) {
    let mut text = String::with_capacity(bytes.len());
    let mut rest = bytes;
    loop {
        match std::str::from_utf8(rest) {
            Ok(valid) => {
                text.push_str(valid);
                return (text, 0);
            }
            Err(error) => {
                let (valid, invalid) = rest.split_at(error.valid_up_to());
                text.push_str(&String::from_utf8_lossy(valid));
                let Some(len) = error.error_len() else { return (text, invalid.len()) };
                text.push(char::REPLACEMENT_CHARACTER);
                rest = &invalid[len..];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes pushed, the text after each push, the text at the end.
    type Case = (&'static [&'static [u8]], &'static [&'static str], &'static str);

    #[test]
    fn never_half_a_character() {
        let cases: [Case; 6] = [
            (&[b"ab", b"c"], &["ab", "c"], ""),
            (&[b"\xf0", b"\x9f\x98", b"\x80!"], &["", "", "😀!"], ""),
            (&[b"a\xe4\xb8", b"\xad\xe6"], &["a", "中"], "\u{fffd}"),
            (&[b"\xff", b"x"], &["\u{fffd}", "x"], ""),
            (&[b"\xe4\xb8", b"x"], &["", "\u{fffd}x"], ""),
            (&[b"\xf0\x9f\x98"], &[""], "\u{fffd}"),
        ];
        for (pushes, texts, rest) in cases {
            let mut decoder = Decoder::new();
            let got: Vec<String> = pushes.iter().map(|bytes| decoder.push_bytes(bytes)).collect();
            assert_eq!((got, decoder.finish().as_str()), (texts.iter().map(|t| t.to_string()).collect(), rest));
        }
    }
}
