//! What a scheduler is asked for, and what it tells.

use serde::Serialize;

use crate::engine::options::{GenerateOptions, Piece, StopReason, Timings};
use crate::engine::pages::PageCounters;
use crate::engine::step::Pooling;
use crate::error::Error;

/// A request, for as long as its engine lives: no other scheduler of the engine has one that is equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct RequestId(pub(super) u64);

impl RequestId {
    /// Its place among the requests of the engine's schedulers, from 1 on.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// A prompt to be answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The prompt's tokens.
    pub prompt: Vec<u32>,
    /// How to answer. `policy` is to be `None`: all sequences have the engine's.
    pub options: GenerateOptions,
    /// Completions, at least 1. Completion `i` is what a request of its own with the seed `options.sampling.seed + i` (modulo 2^64) gives.
    pub n: usize,
    /// Whether [`Completion`] holds the logits that the last token was drawn from.
    pub keep_logits: bool,
}

impl Request {
    /// One completion of a prompt.
    pub fn new(prompt: &[u32], options: GenerateOptions) -> Self {
        Request { prompt: prompt.to_vec(), options, n: 1, keep_logits: false }
    }
}

/// A text whose hidden states are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddingRequest {
    /// The text's tokens.
    pub tokens: Vec<u32>,
    /// How its hidden states become one vector.
    pub pooling: Pooling,
    /// Whether every vector is divided by its Euclidean length.
    pub normalise: bool,
}

/// Something that happened to a request.
#[derive(Debug)]
pub struct Event {
    /// The request.
    pub request: RequestId,
    /// Which of its completions.
    pub completion: usize,
    /// What happened.
    pub kind: EventKind,
}

/// What happened. The last three end a completion.
#[derive(Debug)]
pub enum EventKind {
    /// Tokens arrived.
    Piece(Piece),
    /// The answer has ended.
    Finished(Completion),
    /// The embedding: `[d]`, or `[tokens, d]` without pooling.
    Embedded(Vec<f32>),
    /// It cannot go on. Nobody else is touched.
    Failed(Error),
}

/// How an answer ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Completion {
    /// Why.
    pub stop_reason: StopReason,
    /// Where the time went, and how much of the prompt was in the cache.
    pub timings: Timings,
    /// Times its pages were taken and computed again.
    pub preemptions: usize,
    /// The logits that the last token was drawn from, `[n_vocab]`, where they were asked for.
    pub logits: Option<Vec<f32>>,
}

/// What a scheduler has done since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct SchedulerCounters {
    /// Steps.
    pub steps: u64,
    /// Chunks of prompts fed.
    pub chunks: u64,
    /// Tokens in these, those fed again after a preemption included.
    pub prefilled: u64,
    /// Tokens that were in the cache when a sequence got its slot.
    pub found: u64,
    /// Bursts submitted.
    pub bursts: u64,
    /// Tokens drawn, up to the end of each answer.
    pub drawn: u64,
    /// Most rows of a burst.
    pub most_rows: usize,
    /// Times a sequence's pages were taken.
    pub preemptions: u64,
    /// Pages copied because another sequence goes on from their beginning.
    pub copies: u64,
    /// Sequences that have a slot.
    pub running: usize,
    /// Sequences that wait for one.
    pub waiting: usize,
    /// The cache.
    pub pages: PageCounters,
}
