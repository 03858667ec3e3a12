//! Many sequences on one engine: each step feeds at most one chunk of one prompt and draws for every sequence that is past its prompt.
//! docs/engine.md explains it with a picture.
//!
//! ```no_run
//! # async fn run() -> blueshift::Result<()> {
//! use blueshift::engine::{Engine, EventKind, GenerateOptions, LoadOptions, Request, Scheduler, SchedulerOptions};
//! let source = blueshift::gguf::Source::file("model.gguf")?;
//! let engine = Engine::load(source, LoadOptions { slots: 4, ..Default::default() }).await?;
//! let prompts = ["The capital of France is", "Two and two is"].map(|text| engine.raw_prompt(text));
//! let mut scheduler = Scheduler::new(engine, SchedulerOptions::default())?;
//! for prompt in &prompts {
//!     scheduler.submit(Request::new(prompt, GenerateOptions::default()))?;
//! }
//! while !scheduler.is_idle() {
//!     for event in scheduler.step().await? {
//!         if let EventKind::Piece(piece) = event.kind {
//!             println!("{:?}: {}", event.request, piece.text);
//!         }
//!     }
//! }
//! # Ok(())
//! # }
//! ```

mod bench;
mod constrained;
mod decode;
mod embed;
mod memory;
mod prefill;
mod request;
mod saved;
mod score;
mod sequence;
#[cfg(test)]
mod tests;

pub use bench::{BatchBenchOptions, BatchBenchReport, BatchBenchRow, bench_batches};
pub use request::{Completion, EmbeddingRequest, Event, EventKind, Request, RequestId, SchedulerCounters};
pub use score::{RERANK_INSTRUCTION, cosine, rerank_prompt, yes_probability};

use std::collections::VecDeque;

use super::Engine;
use super::answer::Answer;
use super::any_backend::InFlight;
use super::backend::Backend;
use super::pages::PagePool;
use crate::error::{Error, Result};
use sequence::{Running, Sequence};

/// How a scheduler divides its steps. Nothing here changes a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchedulerOptions {
    /// Prompt tokens fed a step at most: what a long prompt delays others by. 0 leaves it to the backend.
    pub chunk: usize,
    /// Most tokens a sequence draws a step, at least 1 and at most the ring's steps; by default 1 on a CPU, which gains nothing from more, and 8 on a
    /// GPU.
    pub burst: Option<usize>,
    /// Sequences that may wait for a slot.
    pub max_waiting: usize,
}

impl Default for SchedulerOptions {
    fn default() -> Self {
        SchedulerOptions { chunk: 0, burst: None, max_waiting: 1024 }
    }
}

/// A burst in flight.
struct Flying {
    burst: InFlight,
    steps: usize,
    /// Slot and admission of each row.
    rows: Vec<(usize, u64)>,
}

/// Runs many sequences on one engine. Each stream equals the one of an engine of its own, bit for bit.
pub struct Scheduler {
    engine: Engine,
    options: SchedulerOptions,
    burst: usize,
    /// Whether the model has layers whose state cannot be shortened.
    is_recurrent: bool,
    pool: PagePool,
    /// What each slot runs.
    slots: Vec<Option<Running>>,
    /// Those without a slot, the next one first.
    waiting: VecDeque<Sequence>,
    /// Bursts submitted and not yet read, oldest first.
    in_flight: VecDeque<Flying>,
    /// What was not yet told.
    events: Vec<Event>,
    /// The slot whose prompt was fed last.
    turn: usize,
    /// Sequences so far.
    arrivals: u64,
    admissions: u64,
    /// Whether a step has begun and not ended: it failed, or its future was dropped.
    interrupted: bool,
    counters: SchedulerCounters,
}

impl Scheduler {
    /// A scheduler of an engine's slots. What the engine had in its cache is forgotten.
    ///
    /// # Errors
    /// [`Error::BadOption`] names an option and its range.
    pub fn new(mut engine: Engine, options: SchedulerOptions) -> Result<Self> {
        let default = if engine.backend.is_gpu() { 8.min(engine.policy.ring.steps) } else { 1 };
        let burst = options.burst.unwrap_or(default);
        if !(1..=engine.policy.ring.steps).contains(&burst) {
            let expected = "at least 1 and at most the ring's steps";
            return Err(Error::BadOption { option: "burst", found: burst.to_string(), expected });
        }
        engine.clear();
        configure(&mut engine)?;
        let capacity = engine.backend.capacity();
        Ok(Scheduler {
            options,
            burst,
            is_recurrent: !engine.model.plan.recurrent.is_empty(),
            pool: PagePool::new(capacity.pages, capacity.snapshots),
            slots: (0..capacity.slots).map(|_| None).collect(),
            waiting: VecDeque::new(),
            in_flight: VecDeque::new(),
            events: Vec::new(),
            turn: 0,
            arrivals: 0,
            admissions: 0,
            interrupted: false,
            counters: SchedulerCounters::default(),
            engine,
        })
    }

    /// The engine: its model, tokenizer and chat template.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Gives the engine back, with an empty cache. Whatever is under way ends.
    ///
    /// # Errors
    /// What the device reports.
    pub fn into_engine(self) -> Result<Engine> {
        let Scheduler { mut engine, in_flight, .. } = self;
        drop(in_flight);
        let n_pages = engine.info.n_ctx.div_ceil(crate::plan::PAGE) as u32;
        engine.backend.begin(super::SLOT, &[])?;
        engine.backend.set_pages(super::SLOT, 0, &(0..n_pages).collect::<Vec<_>>())?;
        Ok(engine)
    }

    /// Takes a request. No work is done before the next [`Scheduler::step`].
    ///
    /// # Errors
    /// [`Error::BadOption`] names an option and its range, [`Error::BadToken`] an id outside the vocabulary, [`Error::ContextFull`] a prompt that
    /// does not fit, [`Error::Grammar`] what is wrong with a grammar, [`Error::QueueFull`] where too many wait already.
    pub fn submit(&mut self, request: Request) -> Result<RequestId> {
        let bad = |option, found: String, expected| Err(Error::BadOption { option, found, expected });
        let Request { prompt, options, n, .. } = &request;
        options.check(self.engine.info.n_vocab)?;
        self.engine.check_tokens(prompt)?;
        if options.policy.is_some() {
            return bad("policy", "one of a request's own".into(), "none: sequences share their steps");
        }
        if *n == 0 {
            return bad("n", "0".into(), "at least 1 completion");
        }
        let answer = Answer::new(&self.engine.tokenizer, options, prompt.len(), self.engine.info.n_ctx)?;
        let constraint = options.grammar.as_ref().map(|grammar| self.engine.constraint(grammar)).transpose()?;
        self.check_queue(*n)?;
        let id = self.new_request();
        for completion in 0..*n {
            self.arrivals += 1;
            let (answer, constraint) = (answer.clone(), constraint.clone());
            self.waiting.push_back(Sequence::answer(self.arrivals, id, completion, &request, answer, constraint));
        }
        Ok(id)
    }

    /// Takes a text whose embedding is wanted.
    ///
    /// # Errors
    /// Those of [`Scheduler::submit`].
    pub fn submit_embedding(&mut self, request: EmbeddingRequest) -> Result<RequestId> {
        self.engine.check_tokens(&request.tokens)?;
        self.check_queue(1)?;
        let id = self.new_request();
        self.arrivals += 1;
        self.waiting.push_back(Sequence::embedding(self.arrivals, id, &request));
        Ok(id)
    }

    fn new_request(&mut self) -> RequestId {
        self.engine.requests += 1;
        RequestId(self.engine.requests)
    }

    fn check_queue(&self, more: usize) -> Result<()> {
        let (waiting, limit) = (self.waiting.len(), self.options.max_waiting);
        if more > limit.saturating_sub(waiting) { Err(Error::QueueFull { waiting, more, limit }) } else { Ok(()) }
    }

    /// Ends a request without an event; its pages are free at once. Says whether there was something to end.
    pub fn cancel(&mut self, request: RequestId) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|sequence| sequence.request != request);
        let mut found = self.waiting.len() < before;
        for slot in 0..self.slots.len() {
            if self.slots[slot].as_ref().is_some_and(|running| running.sequence.request == request) {
                self.leave(slot);
                found = true;
            }
        }
        self.events.retain(|event| event.request != request);
        found
    }

    /// Whether nothing is under way and everything was told.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.slots.iter().all(Option::is_none) && self.events.is_empty()
    }

    /// What was done so far.
    pub fn counters(&self) -> SchedulerCounters {
        let running = self.slots.iter().flatten().count();
        SchedulerCounters { running, waiting: self.waiting.len(), pages: self.pool.counters(), ..self.counters }
    }

    /// Lets waiting sequences join, feeds a chunk of one prompt, draws for all that are past theirs, and tells what happened. On a GPU the step's
    /// draws are read by the next call, while the device works on that one's.
    ///
    /// A call whose future is dropped loses nothing: sequences are computed again from the tokens that were read.
    ///
    /// # Errors
    /// What the device reports. The next call computes every sequence again.
    pub async fn step(&mut self) -> Result<Vec<Event>> {
        self.advance().await?;
        Ok(std::mem::take(&mut self.events))
    }

    async fn advance(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.interrupted, true) {
            self.start_over()?;
        }
        self.counters.steps += 1;
        self.admit()?;
        self.prefill().await?;
        self.decode().await?;
        self.interrupted = false;
        Ok(())
    }

    /// Sends every sequence back to the queue.
    fn start_over(&mut self) -> Result<()> {
        self.in_flight.clear();
        configure(&mut self.engine)?;
        while let Some(slot) = self.youngest() {
            self.preempt(slot);
        }
        Ok(())
    }
}

/// Sets the engine's policy. A guard that would do a step again without its limit has none here, which gives the same tokens.
fn configure(engine: &mut Engine) -> Result<()> {
    engine.backend.configure(engine.policy.execution(engine.policy.widens()))
}
