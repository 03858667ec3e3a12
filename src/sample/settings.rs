//! How tokens are drawn.

use std::collections::BTreeSet;

use crate::error::{Error, Result};

/// Temperatures below this are greedy.
pub const GREEDY_BELOW: f32 = 0.01;
/// Most ids with a bias or a ban.
pub const MAX_BIASES: usize = 1024;
/// Most tokens that penalties look back at.
pub const MAX_WINDOW: usize = 4096;
/// Most tokens of a vocabulary that is filtered: sums of masses are exact up to here.
pub const MAX_FILTERED_VOCAB: usize = (1 << 19) - 1;
/// Magnitude of a bias at most.
const MAX_BIAS: f32 = 1000.0;

/// How tokens are drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// Divides the logits, 0 to 100; below 0.01 the largest logit wins.
    pub temperature: f32,
    /// Key of the random numbers.
    pub seed: u64,
    /// The likeliest ids kept; 0 keeps all, 1 is greedy.
    pub top_k: u32,
    /// The probability mass kept, above 0; 1 keeps all.
    pub top_p: f32,
    /// The least probability kept, relative to the largest one, 0 to 1; 0 keeps all.
    pub min_p: f32,
    /// The probability mass kept of the ids whose surprise is nearest to the expected one, above 0; 1 keeps all.
    pub typical_p: f32,
    /// Divides positive and multiplies negative logits of recent tokens, 0.01 to 100; 1 changes nothing.
    pub repeat_penalty: f32,
    /// Subtracted from a logit each time its token is among the recent ones, -100 to 100.
    pub frequency_penalty: f32,
    /// Subtracted from the logits of recent tokens, -100 to 100.
    pub presence_penalty: f32,
    /// How many tokens before the drawn one, prompt included, are recent: at most 4096.
    pub penalty_window: usize,
    /// Token ids, each once, and what is added to their logits: -1000 to 1000, or -infinity, which bans the token. At most 1024.
    pub biases: Vec<(u32, f32)>,
}

impl Sampling {
    /// The largest logit always wins.
    pub const GREEDY: Sampling = Sampling::new(0.0, 0);

    /// A draw from all tokens.
    pub const fn new(temperature: f32, seed: u64) -> Self {
        Sampling {
            temperature,
            seed,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            typical_p: 1.0,
            repeat_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            penalty_window: 64,
            biases: Vec::new(),
        }
    }

    /// The same with `ids` never drawn, whatever their bias.
    pub fn suppressing(mut self, ids: &[u32]) -> Self {
        let ids: BTreeSet<u32> = ids.iter().copied().collect();
        self.biases.retain(|(id, _)| !ids.contains(id));
        self.biases.extend(ids.into_iter().map(|id| (id, f32::NEG_INFINITY)));
        self
    }

    /// Whether the largest value wins.
    pub fn is_greedy(&self) -> bool {
        self.temperature < GREEDY_BELOW || self.top_k == 1
    }

    /// The factor on logits, or `None` for greedy.
    pub fn inverse_temperature(&self) -> Option<f32> {
        (!self.is_greedy()).then(|| 1.0 / self.temperature)
    }

    /// Tokens that penalties look back at; 0 where no penalty is on.
    pub fn effective_window(&self) -> usize {
        let on = self.repeat_penalty != 1.0 || self.frequency_penalty != 0.0 || self.presence_penalty != 0.0;
        if on { self.penalty_window } else { 0 }
    }

    /// Whether a logit may change by more than the temperature.
    pub fn adjusts(&self) -> bool {
        !self.biases.is_empty() || self.effective_window() > 0
    }

    /// Whether unlikely ids are left out of a draw.
    pub fn filters(&self) -> bool {
        let by_share = |p| super::fixed_share(p) > 0;
        let on = self.top_k > 0 || by_share(self.top_p) || self.min_p > 0.0 || by_share(self.typical_p);
        on && !self.is_greedy()
    }

    /// Whether tokens are drawn from the logits as they are.
    pub fn is_plain(&self) -> bool {
        !self.adjusts() && !self.filters()
    }

    /// Checks every setting against its range and ids against the vocabulary.
    ///
    /// # Errors
    /// `BadOption` names the setting and its range, or a vocabulary too large to be filtered; `BadToken` an id outside the vocabulary.
    pub fn check(&self, n_vocab: usize) -> Result<()> {
        let in_range = |option, value: f32, ok: bool, expected| match ok {
            true => Ok(()),
            false => Err(Error::BadOption { option, found: value.to_string(), expected }),
        };
        let t = self.temperature;
        in_range("temperature", t, (0.0..=100.0).contains(&t), "a number from 0 to 100")?;
        for (option, p) in [("top-p", self.top_p), ("typical-p", self.typical_p)] {
            in_range(option, p, p > 0.0 && p <= 1.0, "a number above 0, at most 1")?;
        }
        in_range("min-p", self.min_p, (0.0..=1.0).contains(&self.min_p), "a number from 0 to 1")?;
        let repeat = self.repeat_penalty;
        in_range("repeat penalty", repeat, (0.01..=100.0).contains(&repeat), "a number from 0.01 to 100")?;
        for (option, value) in
            [("frequency penalty", self.frequency_penalty), ("presence penalty", self.presence_penalty)]
        {
            in_range(option, value, (-100.0..=100.0).contains(&value), "a number from -100 to 100")?;
        }
        if self.penalty_window > MAX_WINDOW {
            let found = self.penalty_window.to_string();
            return Err(Error::BadOption { option: "penalty window", found, expected: "at most 4096 tokens" });
        }
        if self.filters() && n_vocab > MAX_FILTERED_VOCAB {
            return Err(Error::BadOption {
                option: "vocabulary",
                found: format!("{n_vocab} tokens"),
                expected: "at most 524287 tokens for top-k, top-p, min-p and typical-p",
            });
        }
        self.check_biases(n_vocab)
    }

    fn check_biases(&self, n_vocab: usize) -> Result<()> {
        let bad = |found: String, expected| Err(Error::BadOption { option: "logit bias", found, expected });
        if self.biases.len() > MAX_BIASES {
            return bad(format!("{} tokens", self.biases.len()), "at most 1024 biased or suppressed tokens");
        }
        let mut seen = std::collections::HashSet::new();
        for &(id, bias) in &self.biases {
            if id as usize >= n_vocab {
                return Err(Error::BadToken { id, n_vocab });
            }
            if !(bias.abs() <= MAX_BIAS || bias == f32::NEG_INFINITY) {
                return bad(bias.to_string(), "numbers from -1000 to 1000, or -infinity");
            }
            if !seen.insert(id) {
                return bad(format!("token {id} twice"), "each token once");
            }
        }
        Ok(())
    }
}
