//! Stop strings on streamed text: nothing past one is ever emitted, also where it is split over pieces.

/// Watches a text stream for the first of several strings.
#[derive(Debug, Clone, Default)]
pub(super) struct StopStrings {
    strings: Vec<String>,
    /// Text that may be the beginning of a stop string.
    held: String,
}

impl StopStrings {
    pub(super) fn new(strings: Vec<String>) -> Self {
        StopStrings { strings, held: String::new() }
    }

    /// Adds text. Returns what can be shown, and whether a stop string was met.
    pub(super) fn push(&mut self, text: &str) -> (String, bool) {
        self.held.push_str(text);
        if let Some(at) = self.strings.iter().filter_map(|s| self.held.find(s.as_str())).min() {
            self.held.truncate(at);
            return (std::mem::take(&mut self.held), true);
        }
        let keep = self.strings.iter().map(|s| overlap(&self.held, s)).max().unwrap_or(0);
        let kept = self.held.split_off(self.held.len() - keep);
        (std::mem::replace(&mut self.held, kept), false)
    }

    /// The text held back, once no more will come.
    pub(super) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// Bytes of the longest end of `text` that a proper beginning of `stop` equals.
fn overlap(text: &str, stop: &str) -> usize {
    (1..stop.len()).rev().find(|n| stop.is_char_boundary(*n) && text.ends_with(&stop[..*n])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(stops: &[&str], pieces: &[&str]) -> (String, bool) {
        let mut stop = StopStrings::new(stops.iter().map(|s| s.to_string()).collect());
        let mut shown = String::new();
        for piece in pieces {
            let (text, met) = stop.push(piece);
            shown += &text;
            if met {
                return (shown, true);
            }
        }
        (shown + &stop.finish(), false)
    }

    #[test]
    fn finds_strings_split_over_pieces() {
        let cases: [(&[&str], &[&str], &str, bool); 7] = [
            (&[], &["a", "b"], "ab", false),
            (&["END"], &["one E", "N", "D two"], "one ", true),
            (&["END"], &["one E", "N", "C two"], "one ENC two", false),
            (&["aab"], &["aa", "ab"], "a", true),
            (&["\n\n", "x"], &["a\n", "bx"], "a\nb", true),
            (&["é!"], &["caf", "é", "!"], "caf", true),
            (&["stop"], &["sto"], "sto", false),
        ];
        for (stops, pieces, shown, met) in cases {
            assert_eq!(run(stops, pieces), (shown.to_string(), met), "{stops:?} in {pieces:?}");
        }
    }
}
