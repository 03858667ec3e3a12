//! Characters with the Unicode class that pre-tokenizers ask for.

use super::table::RUNS;

/// Unicode 15.1 classes, as far as pre-tokenizers tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Class {
    /// Controls, separators that are no white space, unassigned code points.
    Other = 0,
    Letter = 1,
    Number = 2,
    Mark = 3,
    Punctuation = 4,
    Symbol = 5,
    Space = 6,
}

const CLASSES: [Class; 8] = [
    Class::Other,
    Class::Letter,
    Class::Number,
    Class::Mark,
    Class::Punctuation,
    Class::Symbol,
    Class::Space,
    Class::Other,
];

/// A character and its class: `class << 24 | code point`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Char(u32);

impl Char {
    pub(super) fn code(self) -> u32 {
        self.0 & 0x00ff_ffff
    }

    pub(super) fn class(self) -> Class {
        CLASSES[(self.0 >> 24) as usize & 7]
    }

    pub(super) fn is(self, c: char) -> bool {
        self.code() == c as u32
    }

    pub(super) fn is_newline(self) -> bool {
        self.is('\r') || self.is('\n')
    }

    /// The character in ASCII lower case; NUL where it is not ASCII.
    pub(super) fn ascii_lower(self) -> u8 {
        u8::try_from(self.code()).ok().filter(u8::is_ascii).unwrap_or(0).to_ascii_lowercase()
    }

    /// Bytes of the character in UTF-8.
    pub(super) fn len_utf8(self) -> usize {
        match self.code() {
            0..0x80 => 1,
            0x80..0x800 => 2,
            0x800..0x1_0000 => 3,
            _ => 4,
        }
    }
}

impl From<char> for Char {
    fn from(c: char) -> Self {
        let code = c as u32;
        // The first run starts at 0, so there is always one at or before the character.
        let run = RUNS.partition_point(|run| run >> 3 <= code).saturating_sub(1);
        Self((RUNS[run] & 7) << 24 | code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_of_typical_and_boundary_characters() {
        let cases = [
            ('\0', Class::Other),
            ('\t', Class::Space),
            ('\u{1c}', Class::Other),
            (' ', Class::Space),
            ('!', Class::Punctuation),
            ('$', Class::Symbol),
            ('0', Class::Number),
            ('z', Class::Letter),
            ('\u{85}', Class::Space),
            ('ª', Class::Letter),
            ('²', Class::Number),
            ('\u{300}', Class::Mark),
            ('\u{200b}', Class::Other),
            ('\u{200d}', Class::Other),
            ('\u{3000}', Class::Space),
            ('中', Class::Letter),
            ('Ⅷ', Class::Number),
            ('\u{fffd}', Class::Symbol),
            ('😀', Class::Symbol),
            ('\u{2ebf0}', Class::Letter),
            ('\u{10ffff}', Class::Other),
        ];
        for (c, class) in cases {
            assert_eq!(Char::from(c).class(), class, "{c:?}");
        }
    }

    #[test]
    fn runs_ascend_and_lengths_are_those_of_utf8() {
        assert!(RUNS.windows(2).all(|w| w[0] >> 3 < w[1] >> 3 && w[0] & 7 != w[1] & 7));
        for c in ['\0', '\u{7f}', '\u{80}', '\u{7ff}', '\u{800}', '\u{ffff}', '\u{10000}', '\u{10ffff}'] {
            assert_eq!(Char::from(c).len_utf8(), c.len_utf8());
        }
    }
}
