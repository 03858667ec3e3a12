//! Sequences on a backend: prompts in, token streams out.
//!
//! ```no_run
//! # async fn run() -> blueshift::Result<()> {
//! use blueshift::engine::{Engine, GenerateOptions, LoadOptions};
//! let source = blueshift::gguf::Source::file("model.gguf")?;
//! let mut engine = Engine::load(source, LoadOptions::default()).await?;
//! let prompt = engine.raw_prompt("The capital of France is");
//! let mut generation = engine.start(&prompt, GenerateOptions { max_tokens: 16, ..Default::default() })?;
//! while let Some(piece) = engine.next(&mut generation).await? {
//!     print!("{}", piece.text);
//! }
//! # Ok(())
//! # }
//! ```

mod answer;
mod any_backend;
pub mod backend;
mod bench;
mod chat;
pub(crate) mod clock;
mod constrained;
pub mod debug;
mod fingerprint;
mod floor;
mod flow;
mod generate;
pub(crate) mod ledger;
mod load;
mod options;
pub mod pages;
mod parity;
pub mod policy;
pub mod profile;
mod profiling;
mod recover;
mod recurrent;
pub mod scheduler;
mod step;
mod stop;

pub use bench::{BenchOptions, BenchReport};
pub use chat::ChatPrompt;
pub use floor::Floor;
pub use generate::Generation;
pub use load::{BackendChoice, LoadOptions};
pub use options::{Finish, GenerateOptions, InvalidDraw, Piece, Stats, StopReason, Timings};
pub use pages::PageCounters;
pub use parity::{ParityAnswer, ParityOptions, ParityReport};
pub use policy::Policy;
pub use profile::Profile;
pub use profiling::ProfileOptions;
pub use scheduler::{
    BatchBenchOptions, BatchBenchReport, BatchBenchRow, Completion, EmbeddingRequest, Event, EventKind, Request,
    RequestId, Scheduler, SchedulerCounters, SchedulerOptions, bench_batches,
};
pub use step::{LogitsRow, Pooling};

use std::cell::OnceCell;
use std::collections::VecDeque;
use std::sync::Arc;

use any_backend::{AnyBackend, InFlight};
use backend::{Backend, Counters, Readback};
use flow::FlowControl;
use policy::Flow;
use recurrent::Recurrent;

use crate::chat::ChatTemplate;
use crate::error::{Error, Result};
use crate::grammar::{Constraint, Grammar, GrammarEnv};
use crate::model::Model;
use crate::tokenizer::Tokenizer;

/// What is loaded, and where it runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Info {
    /// `general.name` of the file, or the name of its source.
    pub name: String,
    /// `general.architecture`.
    pub architecture: String,
    /// Weights.
    pub parameters: u64,
    /// Bytes of the weights in the file.
    pub weight_bytes: u64,
    /// Bytes of weights one decoded token reads.
    pub bytes_per_token: u64,
    /// `cpu` or `wgpu`.
    pub backend: String,
    /// The adapter's name, or the processor's instruction set.
    pub adapter: String,
    /// Whether the self-test found the contract's bits.
    pub exact: bool,
    /// Why the GPU is not used although it was not excluded.
    pub fallback_reason: Option<String>,
    /// Tokens that fit the cache.
    pub n_ctx: usize,
    /// Vocabulary size.
    pub n_vocab: usize,
}

/// The slot of the engine's sequence.
const SLOT: usize = 0;

/// A loaded model with one sequence.
pub struct Engine {
    model: Model,
    tokenizer: Arc<Tokenizer>,
    /// What constraints share; made when first asked for.
    grammars: OnceCell<GrammarEnv>,
    /// The file's template, if any, or why it cannot be used.
    template: Result<Option<ChatTemplate>, String>,
    backend: AnyBackend,
    info: Info,
    /// Tells the model from others.
    fingerprint: u64,
    /// Tokens whose keys and values are in the cache, first position first.
    cached: Vec<u32>,
    /// Where recurrent layers stand, where the model has any.
    recurrent: Option<Recurrent>,
    /// How to decode, where a request does not say.
    policy: Policy,
    /// Steps a submit and submits in flight, and the flow, steps and slots it was made for.
    flow: ((Flow, usize, usize), FlowControl),
    /// Bursts submitted and not yet read, oldest first.
    in_flight: VecDeque<Flying>,
    /// Generations started so far; only the last may go on.
    generations: u64,
}

/// A burst in flight.
struct Flying {
    burst: InFlight,
    steps: usize,
    submitted_ms: f64,
}

impl Engine {
    /// What is loaded.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// The model's configuration and plan.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Sequences it has room for.
    pub fn slots(&self) -> usize {
        self.backend.capacity().slots
    }

    /// The model's tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Submits, dispatches, maps and bytes since the model was loaded.
    pub fn counters(&self) -> Counters {
        self.backend.counters()
    }

    /// Makes every readback an error whose purpose is not among `allowed`; `None` allows all.
    pub fn restrict_readbacks(&self, allowed: Option<Vec<Readback>>) {
        self.backend.restrict_readbacks(allowed);
    }

    /// A constraint at the beginning of its text. The first one takes a moment: the vocabulary becomes a trie.
    ///
    /// # Errors
    /// [`Error::Grammar`], which names the fault, and [`Error::Tokenizer`] for a vocabulary that is too large.
    pub fn constraint(&self, grammar: &Grammar) -> Result<Constraint> {
        let env = match self.grammars.get() {
            Some(env) => env,
            None => {
                let env = GrammarEnv::new(self.tokenizer.clone(), self.info.n_vocab)?;
                self.grammars.get_or_init(|| env)
            }
        };
        env.constraint(grammar)
    }

    /// Token ids of a text as it is: special tokens parsed, BOS and EOS added as the model says.
    pub fn raw_prompt(&self, text: &str) -> Vec<u32> {
        self.tokenizer.encode_prompt(text)
    }

    /// Forgets every token in the cache; a generation under way ends.
    pub fn clear(&mut self) {
        self.supersede();
        self.cached.clear();
    }

    fn check_tokens(&self, ids: &[u32]) -> Result<()> {
        let n_vocab = self.info.n_vocab;
        if let Some(&id) = ids.iter().find(|id| **id as usize >= n_vocab) {
            return Err(Error::BadToken { id, n_vocab });
        }
        if ids.is_empty() {
            return Err(Error::BadOption { option: "prompt", found: "empty".into(), expected: "at least one token" });
        }
        if ids.len() > self.info.n_ctx {
            return Err(Error::ContextFull { needed: ids.len(), limit: self.info.n_ctx });
        }
        Ok(())
    }

    /// Logits after `ids`, computed from an empty cache in chunks of `chunk` tokens (0: the backend's choice).
    ///
    /// Returns `[rows, n_vocab]`: every row where `all` is set, else the last. Reads the logits of each row back.
    ///
    /// # Errors
    /// [`Error::BadToken`], [`Error::BadOption`] and [`Error::ContextFull`] for ids that cannot be fed, [`Error::NotFinite`] where the guard
    /// tripped, and what the device reports.
    pub async fn logits(&mut self, ids: &[u32], chunk: usize, all: bool) -> Result<Vec<f32>> {
        self.check_tokens(ids)?;
        self.clear();
        self.backend.configure(self.policy.execution(false))?;
        let mut rows = Vec::new();
        for part in ids.chunks(self.chunk_len(chunk)) {
            self.feed_next(part).await?;
            self.cached.extend(part);
            let last = self.cached.len() == ids.len();
            let wanted = if all { 0..part.len() } else { part.len() - 1..part.len() - 1 + usize::from(last) };
            for row in wanted {
                self.backend.head(SLOT, row).await?;
                rows.extend(self.backend.read_logits(SLOT).await?);
            }
        }
        self.check_guard().await?;
        Ok(rows)
    }

    fn chunk_len(&self, asked: usize) -> usize {
        let most = self.backend.max_chunk();
        if asked == 0 { most } else { asked.min(most) }
    }
}
