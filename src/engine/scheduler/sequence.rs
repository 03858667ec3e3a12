//! A completion or an embedding on its way: waiting, or in a slot.

use super::request::{EmbeddingRequest, Request, RequestId};
use crate::engine::answer::Answer;
use crate::engine::backend::First;
use crate::engine::clock::now_ms;
use crate::engine::options::Timings;
use crate::engine::step::Pooling;
use crate::grammar::Constraint;
use crate::plan::PAGE;
use crate::sample::Sampling;

/// What is known of a sequence without a slot. It is all that is needed to compute the rest again.
#[derive(Debug)]
pub(super) struct Sequence {
    /// Order of arrival.
    pub(super) age: u64,
    pub(super) request: RequestId,
    pub(super) completion: usize,
    /// The prompt, and the tokens drawn and read.
    pub(super) tokens: Vec<u32>,
    /// Most prompt tokens of a chunk, 0 for no limit of its own.
    pub(super) chunk: usize,
    pub(super) task: Task,
    pub(super) preemptions: usize,
    /// When it first had a slot.
    started_ms: Option<f64>,
    decode_started_ms: f64,
    pub(super) timings: Timings,
}

#[derive(Debug)]
pub(super) enum Task {
    Answer(Box<Answering>),
    Embed(Embedding),
}

/// How an answer is drawn.
#[derive(Debug)]
pub(super) struct Answering {
    pub(super) answer: Answer,
    pub(super) sampling: Sampling,
    pub(super) stop_ids: Vec<u32>,
    pub(super) logprobs: Option<usize>,
    pub(super) keep_logits: bool,
    /// Whether its end may be one that the device does not see.
    pub(super) has_stop_strings: bool,
    /// What the answer has to look like; it has seen every token of `tokens` behind the prompt.
    pub(super) constraint: Option<Constraint>,
}

#[derive(Debug)]
pub(super) struct Embedding {
    pub(super) pooling: Pooling,
    pub(super) normalise: bool,
    /// What was read: all states, their sum, or the last one.
    pub(super) states: Vec<f32>,
}

impl Sequence {
    fn new(age: u64, request: RequestId, completion: usize, tokens: &[u32], task: Task) -> Self {
        Sequence {
            age,
            request,
            completion,
            tokens: tokens.to_vec(),
            chunk: 0,
            task,
            preemptions: 0,
            started_ms: None,
            decode_started_ms: 0.0,
            timings: Timings { prompt_tokens: tokens.len(), ..Timings::default() },
        }
    }

    pub(super) fn answer(
        age: u64,
        id: RequestId,
        completion: usize,
        request: &Request,
        answer: Answer,
        constraint: Option<Constraint>,
    ) -> Self {
        let options = &request.options;
        let seed = options.sampling.seed.wrapping_add(completion as u64);
        let task = Answering {
            stop_ids: answer.stop_ids(),
            answer,
            sampling: Sampling { seed, ..options.sampling.clone() },
            logprobs: options.logprobs,
            keep_logits: request.keep_logits,
            has_stop_strings: !options.stop.is_empty(),
            constraint,
        };
        let sequence = Sequence::new(age, id, completion, &request.prompt, Task::Answer(Box::new(task)));
        Sequence { chunk: options.chunk, ..sequence }
    }

    pub(super) fn embedding(age: u64, id: RequestId, request: &EmbeddingRequest) -> Self {
        let &EmbeddingRequest { ref tokens, pooling, normalise } = request;
        Sequence::new(age, id, 0, tokens, Task::Embed(Embedding { pooling, normalise, states: Vec::new() }))
    }

    /// Tokens that are fed before anything is drawn: all but the last, which the first burst feeds, or all whose hidden states are wanted.
    pub(super) fn to_feed(&self) -> usize {
        match self.task {
            Task::Answer(_) => self.tokens.len() - 1,
            Task::Embed(_) => self.tokens.len(),
        }
    }

    /// Tokens whose keys and values may come from the cache: those whose hidden states nobody asks for.
    pub(super) fn reusable(&self) -> usize {
        match &self.task {
            Task::Embed(Embedding { pooling: Pooling::Mean | Pooling::None, .. }) => 0,
            _ => self.tokens.len() - 1,
        }
    }

    /// Notes that it has a slot, `cached` tokens of its prompt being in the cache.
    pub(super) fn start(&mut self, cached: usize) {
        if self.started_ms.is_none() {
            self.started_ms = Some(now_ms());
            self.timings.cached_tokens = cached;
        }
    }

    fn elapsed_ms(&self) -> f64 {
        self.started_ms.map_or(0.0, |start| now_ms() - start)
    }

    pub(super) fn note_prefilled(&mut self) {
        if self.tokens.len() == self.timings.prompt_tokens {
            self.timings.prefill_ms = self.elapsed_ms();
        }
    }

    pub(super) fn note_first_token(&mut self) {
        self.timings.first_token_ms = self.elapsed_ms();
        self.decode_started_ms = now_ms();
    }

    /// The timings at the end of an answer of `drawn` tokens.
    pub(super) fn final_timings(&self, drawn: usize) -> Timings {
        Timings { decode_tokens: drawn - 1, decode_ms: now_ms() - self.decode_started_ms, ..self.timings }
    }
}

/// A sequence in a slot.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) sequence: Sequence,
    /// Which of all that have had a slot it is: results of a burst belong to the sequence that was submitted.
    pub(super) admission: u64,
    pub(super) pages: Vec<u32>,
    /// Of these, how many are in the tree of prefixes: full ones, whose values are known to be finite.
    pub(super) in_tree: usize,
    /// Recurrent states saved on the way: tokens they have seen, and where. They are found by others once these tokens' pages are.
    pub(super) snapshots: Vec<(usize, u32)>,
    /// Tokens to be fed before decoding, and how many have been.
    pub(super) to_feed: usize,
    pub(super) fed: usize,
    /// Tokens in the cache when the last one was drawn: the guard has let their values pass.
    pub(super) passed: usize,
    /// Tokens that were in the cache when it got its slot.
    pub(super) found: usize,
    /// Draws in flight.
    pub(super) ahead: usize,
    /// Whether the last thing that ran in the slot was a burst.
    on_device: bool,
    /// Whether what was prefilled can be found by others.
    pub(super) is_shared: bool,
}

impl Running {
    pub(super) fn new(sequence: Sequence, admission: u64, pages: Vec<u32>) -> Self {
        let (in_tree, to_feed) = (pages.len(), sequence.to_feed());
        let fed = in_tree * PAGE;
        Running {
            sequence,
            admission,
            pages,
            in_tree,
            snapshots: Vec::new(),
            to_feed,
            fed,
            passed: 0,
            found: fed,
            ahead: 0,
            on_device: false,
            is_shared: false,
        }
    }

    pub(super) fn is_prefilling(&self) -> bool {
        self.fed < self.to_feed
    }

    /// Tokens in the cache once what is in flight is done: the position of the token fed next.
    pub(super) fn position(&self) -> usize {
        match self.is_prefilling() {
            true => self.fed,
            false => self.sequence.tokens.len() - 1 + self.ahead,
        }
    }

    /// Whether it is computing what `sequence` would compute, too, but will find in the cache if it waits: a page at least, or the same prompt. Where layers
    /// are recurrent only whole pages are found.
    pub(super) fn saves_work_of(&self, sequence: &Sequence, is_recurrent: bool) -> bool {
        if self.is_shared {
            return false;
        }
        let most = self.to_feed.min(sequence.reusable());
        let common = self.sequence.tokens.iter().zip(&sequence.tokens).take(most).take_while(|(a, b)| a == b).count();
        let common = if is_recurrent { common / PAGE * PAGE } else { common };
        let saved = common.saturating_sub(self.found);
        saved >= PAGE || (saved > 0 && self.sequence.request == sequence.request)
    }

    /// How it is drawn, where it has been prefilled and is an answer.
    pub(super) fn decoding(&self) -> Option<&Answering> {
        match &self.sequence.task {
            Task::Answer(answering) if !self.is_prefilling() => Some(answering),
            _ => None,
        }
    }

    /// Tokens it may still draw, besides those in flight.
    pub(super) fn left(&self) -> usize {
        self.decoding().map_or(0, |answering| answering.answer.left().saturating_sub(self.ahead))
    }

    /// Whether it is to be read after each step, before the next one.
    pub(super) fn needs_host(&self) -> bool {
        let is_read = |a: &Answering| a.logprobs.is_some() || (a.keep_logits && a.has_stop_strings);
        self.decoding().is_some_and(|a| is_read(a) || a.constraint.is_some())
    }

    /// Whether its draws are under a mask.
    pub(super) fn is_constrained(&self) -> bool {
        self.decoding().is_some_and(|answering| answering.constraint.is_some())
    }

    /// Feeds what was taken without a draw like a prompt: all but the last token. `cached` tokens are in the cache.
    pub(super) fn feed_again(&mut self, cached: usize) {
        self.fed = cached;
        self.to_feed = self.sequence.to_feed();
        self.on_device = false;
    }

    /// Whether nothing was drawn yet.
    pub(super) fn is_new(&self) -> bool {
        self.ahead == 0 && self.decoding().is_some_and(|answering| answering.answer.drawn() == 0)
    }

    /// Where the next burst's first token comes from.
    pub(super) fn first(&self) -> First {
        match self.on_device {
            true => First::FromState,
            false => First::Token(self.sequence.tokens[self.sequence.tokens.len() - 1]),
        }
    }

    /// Notes that a burst was submitted.
    pub(super) fn submitted(&mut self, steps: usize) {
        self.on_device = true;
        self.ahead += steps;
    }
}
