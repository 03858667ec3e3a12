//! Where a JSON value ends in a text that is still growing.

/// Nesting that is followed, below what the JSON reader allows.
const MAX_DEPTH: usize = 100;

/// What is known of the value so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scan {
    /// It may go on.
    Wait,
    /// It ends before this byte.
    Done(usize),
    /// It is none: this byte cannot stand there.
    Bad(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expect {
    Value,
    ValueOrEnd,
    Key,
    KeyOrEnd,
    Colon,
    CommaOrEnd,
    /// Inside a string; whether it is a key.
    Text(bool),
    Escaped(bool),
    /// Inside a number or a word.
    Word,
}

/// Follows an object or array. Each byte is looked at once, however often the text grows. Words and escapes are left to the JSON reader
/// to check.
#[derive(Debug, Clone, Default)]
pub(super) struct JsonScan {
    /// First byte of the value, the byte to look at next, what it may be, open brackets. `None` between values.
    progress: Option<(usize, usize, Expect, Vec<u8>)>,
}

impl JsonScan {
    /// Follows the value that begins at byte `start` of `text`. As long as the answer is `Wait`, the next call must give the same text, grown.
    pub(super) fn scan(&mut self, text: &str, start: usize) -> Scan {
        let fresh = || (start, start, Expect::Value, Vec::new());
        let (begun, mut at, mut expect, mut open) = self.progress.take().filter(|p| p.0 == start).unwrap_or_else(fresh);
        let bytes = text.as_bytes();
        while let Some(&byte) = bytes.get(at) {
            match step(byte, expect, &mut open) {
                Some(next) => expect = next,
                None => return Scan::Bad(at),
            }
            at += 1;
            if open.is_empty() {
                return Scan::Done(at);
            }
        }
        self.progress = Some((begun, at, expect, open));
        Scan::Wait
    }
}

/// What may follow `byte`; `None` where it cannot stand.
fn step(byte: u8, expect: Expect, open: &mut Vec<u8>) -> Option<Expect> {
    let blank = matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
    Some(match (expect, byte) {
        (Expect::Text(key), b'"') => {
            if key {
                Expect::Colon
            } else {
                Expect::CommaOrEnd
            }
        }
        (Expect::Text(key), b'\\') => Expect::Escaped(key),
        (Expect::Text(_), 0..0x20) => return None,
        (Expect::Text(key) | Expect::Escaped(key), _) => Expect::Text(key),
        (Expect::Word, b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'+' | b'-' | b'.') => Expect::Word,
        (Expect::Word, _) => step(byte, Expect::CommaOrEnd, open)?,
        (_, _) if blank && !open.is_empty() => expect,
        (Expect::Value | Expect::ValueOrEnd, b'{' | b'[') => {
            open.push(byte);
            if open.len() > MAX_DEPTH {
                return None;
            }
            if byte == b'{' { Expect::KeyOrEnd } else { Expect::ValueOrEnd }
        }
        (Expect::Value | Expect::ValueOrEnd, _) if open.is_empty() => return None,
        (Expect::Value | Expect::ValueOrEnd, b'"') => Expect::Text(false),
        (Expect::Value | Expect::ValueOrEnd, b'-' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z') => Expect::Word,
        (Expect::Key | Expect::KeyOrEnd, b'"') => Expect::Text(true),
        (Expect::Colon, b':') => Expect::Value,
        (Expect::CommaOrEnd, b',') => {
            if open.last() == Some(&b'{') {
                Expect::Key
            } else {
                Expect::Value
            }
        }
        (Expect::KeyOrEnd | Expect::CommaOrEnd, b'}') if open.last() == Some(&b'{') => {
            open.pop();
            Expect::CommaOrEnd
        }
        (Expect::ValueOrEnd | Expect::CommaOrEnd, b']') if open.last() == Some(&b'[') => {
            open.pop();
            Expect::CommaOrEnd
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_end_where_they_end_in_every_piece() {
        let done = [
            r#"{}"#,
            r#"[]"#,
            r#"{"a": [1, -2.5e+3, true, null, {"b": "}]\"{"}], "c": {}}"#,
            r#"[{"name": "f", "arguments": {"t": "</tool_call> é 😀"}}, {}]"#,
            "{ \n\t\"a\"\r:\"\\\\\" }",
        ];
        for json in done {
            let text = format!("<<{json} }}rest");
            for cut in (2..=text.len()).filter(|cut| text.is_char_boundary(*cut)) {
                let mut scan = JsonScan::default();
                let mut seen = scan.scan(&text[..cut], 2);
                if seen == Scan::Wait {
                    seen = scan.scan(&text, 2);
                }
                assert_eq!(seen, Scan::Done(2 + json.len()), "{json} cut at {cut}");
            }
        }
    }

    #[test]
    fn what_is_no_json_ends_at_once() {
        let deep = "[".repeat(MAX_DEPTH + 1);
        for text in [
            "x",
            " ",
            "1",
            "\"",
            "{a",
            "{'",
            "{\"a\" 1",
            "{\"a\":,",
            "[1 2",
            "[}",
            "{]",
            "{\"a\":1,}",
            "{\"a\n",
            "[,",
            &deep,
        ] {
            assert_eq!(JsonScan::default().scan(text, 0), Scan::Bad(text.len() - 1), "{text}");
        }
        for text in ["", "{", "{\"a", "[1", "{\"a\":tru", "[[[", &deep[1..]] {
            assert_eq!(JsonScan::default().scan(text, 0), Scan::Wait, "{text}");
        }
    }
}
