//! What a generation is asked for, and what it tells.

use serde::Serialize;

use super::backend::RingCounters;
use super::policy::Policy;
use crate::error::{Error, Result};
use crate::grammar::Grammar;
use crate::sample::{Logprobs, MAX_TOP_LOGPROBS, Sampling};

/// What is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerateOptions {
    /// Most tokens drawn, at least 1.
    pub max_tokens: usize,
    /// How they are drawn.
    pub sampling: Sampling,
    /// Texts that end the answer; not shown.
    pub stop: Vec<String>,
    /// Token ids that end the answer, besides the model's own.
    pub stop_ids: Vec<u32>,
    /// Control tokens whose text is shown: the marks that a parser of the answer looks for.
    pub shown_tokens: Vec<u32>,
    /// Goes on after the model's own end tokens: for measuring.
    pub ignore_eos: bool,
    /// Gives each token's log-probability and those of this many likeliest tokens, at most 20. Costs an awaited step a token.
    pub logprobs: Option<usize>,
    /// What the answer has to look like. Costs an awaited step a token that is drawn; tokens that the grammar forces are fed together.
    pub grammar: Option<Grammar>,
    /// Prompt tokens fed at once; 0 leaves it to the backend.
    pub chunk: usize,
    /// How to decode, where it is not as the engine was loaded.
    pub policy: Option<Policy>,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        GenerateOptions {
            max_tokens: 256,
            sampling: Sampling::GREEDY,
            stop: Vec::new(),
            stop_ids: Vec::new(),
            shown_tokens: Vec::new(),
            ignore_eos: false,
            logprobs: None,
            grammar: None,
            chunk: 0,
            policy: None,
        }
    }
}

impl GenerateOptions {
    pub(super) fn check(&self, n_vocab: usize) -> Result<()> {
        let bad = |option, found: String, expected| Err(Error::BadOption { option, found, expected });
        if self.max_tokens == 0 {
            return bad("max tokens", "0".into(), "at least 1");
        }
        if self.stop.iter().any(String::is_empty) {
            return bad("stop", "an empty string".into(), "non-empty strings");
        }
        if let Some(n) = self.logprobs.filter(|n| *n > MAX_TOP_LOGPROBS) {
            return bad("top logprobs", n.to_string(), "0 to 20");
        }
        if let Some(&id) = self.stop_ids.iter().find(|id| **id as usize >= n_vocab) {
            return Err(Error::BadToken { id, n_vocab });
        }
        self.sampling.check(n_vocab)
    }
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model drew an end token.
    Eos,
    /// One of the request's stop ids was drawn.
    StopId,
    /// A stop string appeared.
    StopString,
    /// The token limit was reached.
    MaxTokens,
    /// The context is full.
    ContextFull,
    /// Nothing can follow what the grammar asked for.
    GrammarEnd,
}

/// Where the time went. Prefill and decode are separate; the first token belongs to neither rate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Timings {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Of these, found in the cache.
    pub cached_tokens: usize,
    /// Milliseconds from the start to the prompt's last token being fed.
    pub prefill_ms: f64,
    /// Milliseconds from the start to the first token.
    pub first_token_ms: f64,
    /// Tokens drawn after the first.
    pub decode_tokens: usize,
    /// Milliseconds spent on these.
    pub decode_ms: f64,
}

/// What the decode pipeline did for an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Stats {
    /// Bursts submitted.
    pub bursts: u64,
    /// Of those read, bursts after which another one was in flight already, so that the device did not wait for the host.
    pub overlapped_bursts: u64,
    /// Most steps a submit.
    pub longest_burst: usize,
    /// Most submits in flight.
    pub deepest: usize,
    /// Steps of bursts that were dropped unread: submitted ahead of the answer's end.
    pub discarded_steps: u64,
    /// Milliseconds spent recording and submitting.
    pub record_ms: f64,
    /// Milliseconds spent waiting for results.
    pub readback_wait_ms: f64,
    /// Mean milliseconds from submitting a burst to having its tokens.
    pub latency_ms: f64,
    /// Milliseconds the device was busy until it had drawn the first token, where its submits were timed.
    pub prefill_busy_ms: Option<f64>,
    /// Milliseconds the device was busy with the tokens after the first, where its submits were timed.
    pub decode_busy_ms: Option<f64>,
    /// Times the guard tripped.
    pub guard_trips: u64,
    /// Of these, steps done again with a wider limit.
    pub widened: u64,
    /// Times the device drew an id that cannot be; the host then draws.
    pub fallbacks: u64,
    /// What the ring did.
    pub ring: RingCounters,
}

/// A row of logits where the device drew an id that cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct InvalidDraw {
    /// What the device gave; none where it found no candidate.
    pub id: Option<u32>,
    /// Position of the token that was to be drawn.
    pub position: usize,
    /// Least and largest of the finite logits.
    pub least: f32,
    /// See `least`.
    pub largest: f32,
    /// Mean of the finite logits.
    pub mean: f64,
    /// Logits that are NaN or infinite.
    pub not_finite: usize,
}

/// Tokens that arrived together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Piece {
    /// The ids, an end token included.
    pub ids: Vec<u32>,
    /// The text that can be shown: whole characters, no control tokens, nothing of a stop string.
    pub text: String,
    /// Of each id, where they were asked for.
    pub logprobs: Vec<Logprobs>,
}

/// How an answer ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Finish {
    /// Why.
    pub stop_reason: StopReason,
    /// Where the time went.
    pub timings: Timings,
    /// What the decode pipeline did.
    pub stats: Stats,
    /// The first id the device drew that cannot be, if it did.
    pub invalid_draw: Option<InvalidDraw>,
}
