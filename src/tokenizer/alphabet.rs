//! GPT-2's alphabet: 256 printable characters that stand for the 256 bytes.

/// The bytes that stand for themselves as Latin-1 characters.
fn is_plain(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff)
}

/// The other bytes follow U+0100 in ascending order.
fn rank_of_hidden(byte: u8) -> u32 {
    match byte {
        0x00..=0x20 => u32::from(byte),
        0x7f..=0xa0 => u32::from(byte) - 0x7f + 0x21,
        _ => 0x43,
    }
}

/// The character that stands for `byte`.
pub(super) fn char_of(byte: u8) -> char {
    let code = if is_plain(byte) { u32::from(byte) } else { 0x100 + rank_of_hidden(byte) };
    // Every code is below U+0144, so it is a character.
    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The byte that `c` stands for.
pub(super) fn byte_of(c: char) -> Option<u8> {
    let code = c as u32;
    match code {
        0..0x100 => u8::try_from(code).ok().filter(|b| is_plain(*b)),
        0x100..=0x120 => Some((code - 0x100) as u8),
        0x121..=0x142 => Some((code - 0x121 + 0x7f) as u8),
        0x143 => Some(0xad),
        _ => None,
    }
}

/// The bytes that a token's text stands for. Characters outside the alphabet stand for themselves.
pub(super) fn decode(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for c in text.chars() {
        match byte_of(c) {
            Some(byte) => out.push(byte),
            None => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_its_own_printable_character() {
        let mut seen = std::collections::HashSet::new();
        for byte in 0..=255 {
            let c = char_of(byte);
            assert!(seen.insert(c) && !c.is_whitespace() && !c.is_control());
            assert_eq!(byte_of(c), Some(byte));
        }
        assert_eq!([char_of(b' '), char_of(b'\n'), char_of(b'a')], ['Ġ', 'Ċ', 'a']);
        assert_eq!(byte_of('中'), None);
        assert_eq!(decode("Ġa中"), " a中".as_bytes());
    }
}
