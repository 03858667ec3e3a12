//! From drawn tokens to text, and whether the answer ends with one of them.

use std::collections::BTreeSet;

use super::backend::MAX_STOP_IDS;
use super::options::{GenerateOptions, StopReason};
use super::stop::StopStrings;
use crate::error::{Error, Result};
use crate::tokenizer::{Decoder, Tokenizer};

/// An answer that is being drawn.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    /// Ids that end it.
    stop_ids: BTreeSet<u32>,
    decoder: Decoder,
    stop: StopStrings,
    n_prompt: usize,
    max_tokens: usize,
    n_ctx: usize,
    drawn: usize,
}

impl Answer {
    /// An answer to `n_prompt` tokens in a context of `n_ctx`.
    ///
    /// # Errors
    /// `BadOption` where nothing but the number of tokens could end it, or too many ids would.
    pub(super) fn new(tokenizer: &Tokenizer, options: &GenerateOptions, n_prompt: usize, n_ctx: usize) -> Result<Self> {
        let own: &[u32] = if options.ignore_eos { &[] } else { tokenizer.stop_ids() };
        let stop_ids: BTreeSet<u32> = own.iter().chain(&options.stop_ids).copied().collect();
        check_stops(options, stop_ids.len())?;
        let decoder = Decoder::showing(options.shown_tokens.clone());
        let stop = StopStrings::new(options.stop.clone());
        Ok(Answer { stop_ids, decoder, stop, n_prompt, max_tokens: options.max_tokens, n_ctx, drawn: 0 })
    }

    /// Ids that end it, the model's own included.
    pub(super) fn stop_ids(&self) -> Vec<u32> {
        self.stop_ids.iter().copied().collect()
    }

    /// Tokens drawn.
    pub(super) fn drawn(&self) -> usize {
        self.drawn
    }

    /// Tokens it may still have.
    pub(super) fn left(&self) -> usize {
        self.max_tokens - self.drawn
    }

    /// Tokens it may still have that the context has room for, and one more: with that one it ends.
    pub(super) fn room(&self) -> usize {
        self.left().min((self.n_ctx + 1).saturating_sub(self.position())).max(1)
    }

    /// Position of the token drawn next.
    pub(super) fn position(&self) -> usize {
        self.n_prompt + self.drawn
    }

    /// Takes a drawn token: adds to `shown` what can be shown now, and says why the answer ends with it, where it does.
    pub(super) fn push(&mut self, tokenizer: &Tokenizer, id: u32, shown: &mut String) -> Option<StopReason> {
        self.drawn += 1;
        let reason = self.stop_reason(tokenizer, id, shown)?;
        if reason != StopReason::StopString {
            self.flush(shown);
        }
        Some(reason)
    }

    /// Adds to `shown` what was held back; nothing follows.
    pub(super) fn flush(&mut self, shown: &mut String) {
        let (text, met) = self.stop.push(&self.decoder.finish());
        shown.push_str(&text);
        if !met {
            shown.push_str(&self.stop.finish());
        }
    }

    fn stop_reason(&mut self, tokenizer: &Tokenizer, id: u32, shown: &mut String) -> Option<StopReason> {
        if self.stop_ids.contains(&id) {
            return Some(if tokenizer.is_eog(id) { StopReason::Eos } else { StopReason::StopId });
        }
        let text = self.decoder.push(tokenizer, id);
        let (text, met) = self.stop.push(&text);
        shown.push_str(&text);
        if met {
            Some(StopReason::StopString)
        } else if self.drawn == self.max_tokens {
            Some(StopReason::MaxTokens)
        } else if self.position() > self.n_ctx {
            Some(StopReason::ContextFull)
        } else {
            None
        }
    }
}

/// Checks that something can end the answer; `n_stop_ids` counts the model's own.
fn check_stops(options: &GenerateOptions, n_stop_ids: usize) -> Result<()> {
    if n_stop_ids > MAX_STOP_IDS {
        let found = n_stop_ids.to_string();
        return Err(Error::BadOption { option: "stop ids", found, expected: "at most 64, the model's own included" });
    }
    if n_stop_ids == 0 && options.stop.is_empty() && !options.ignore_eos {
        let found = "none, and the model has no end token".into();
        return Err(Error::BadOption { option: "stop", found, expected: "a stop id, a stop text, or ignore_eos" });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_nothing_could_end_is_refused() {
        let options = |stop: &[&str], ignore_eos| GenerateOptions {
            stop: stop.iter().map(|s| s.to_string()).collect(),
            ignore_eos,
            ..Default::default()
        };
        let cases = [
            (options(&[], false), 0, Some("stop")),
            (options(&[], false), 1, None),
            (options(&[], true), 0, None),
            (options(&["x"], false), 0, None),
            (options(&[], false), 64, None),
            (options(&["x"], true), 65, Some("stop ids")),
        ];
        for (options, n_stop_ids, wanted) in cases {
            let found = match check_stops(&options, n_stop_ids) {
                Err(Error::BadOption { option, .. }) => Some(option),
                _ => None,
            };
            assert_eq!(found, wanted, "{n_stop_ids} ids, {options:?}");
        }
    }
}
