//! One request: prefill the prompt, then bursts until something stops it.

use std::collections::BTreeSet;

use super::answer::Answer;
use super::backend::{Backend, Burst, Drawn, First, Row, RowEnd, only};
use super::clock::now_ms;
use super::flow::FlowControl;
use super::ledger::Phase;
use super::options::{Finish, GenerateOptions, InvalidDraw, Piece, Stats, StopReason, Timings};
use super::policy::{Flow, Policy, StopCheck};
use super::{Engine, SLOT};
use crate::error::{Error, Result};
use crate::grammar::Constraint;
use crate::sample::{Logprobs, top_logprobs};

/// A request in progress.
pub struct Generation {
    pub(super) options: GenerateOptions,
    pub(super) policy: Policy,
    pub(super) prompt: Vec<u32>,
    /// Which of the engine's generations this is.
    number: u64,
    pub(super) prefilled: bool,
    /// Where the next burst's first token comes from.
    pub(super) first: First,
    /// Tokens drawn and read, and draws in flight.
    pub(super) submitted: usize,
    /// Bursts read.
    read: u64,
    /// The last token drawn and read.
    pub(super) last: u32,
    pub(super) answer: Answer,
    /// What the answer has to look like.
    pub(super) constraint: Option<Constraint>,
    /// Under a constraint, tokens of the answer that are not in the cache yet.
    pub(super) unfed: Vec<u32>,
    /// Of the ids that end the answer, those the device looks for.
    device_stop_ids: Vec<u32>,
    /// Ids that are never drawn.
    pub(super) banned: BTreeSet<u32>,
    /// Tokens drawn when the guard's limit comes back, where it is lifted.
    pub(super) wide_until: Option<usize>,
    /// Whether the host draws, because the device cannot be trusted to.
    pub(super) host_draws: bool,
    /// When the prompt's first chunk was fed.
    started_ms: Option<f64>,
    decode_started_ms: f64,
    pub(super) timings: Timings,
    pub(super) stats: Stats,
    pub(super) invalid_draw: Option<InvalidDraw>,
    finish: Option<Finish>,
    /// The error that the next call gives.
    pending_error: Option<Error>,
    /// Whether it ended with an error.
    failed: bool,
}

impl Generation {
    /// How the answer ended, once it has.
    pub fn finish(&self) -> Option<&Finish> {
        self.finish.as_ref()
    }

    fn elapsed_ms(&self) -> f64 {
        self.started_ms.map_or(0.0, |start| now_ms() - start)
    }
}

impl Engine {
    /// Checks a request. No work is done before the first `next`. The engine has one sequence: a new generation ends the
    /// one before.
    ///
    /// # Errors
    /// [`Error::BadOption`] names an option and its range, [`Error::BadToken`] an id outside the vocabulary,
    /// [`Error::ContextFull`] a prompt that does not fit, [`Error::Grammar`] what is wrong with a grammar.
    pub fn start(&mut self, prompt: &[u32], options: GenerateOptions) -> Result<Generation> {
        options.check(self.info.n_vocab)?;
        self.check_tokens(prompt)?;
        let policy = options.policy.unwrap_or(self.policy);
        policy.check()?;
        let answer = Answer::new(&self.tokenizer, &options, prompt.len(), self.info.n_ctx)?;
        let constraint = options.grammar.as_ref().map(|grammar| self.constraint(grammar)).transpose()?;
        let biases = options.sampling.biases.iter();
        self.supersede();
        // Under a grammar no step is done again without its limit: it has none from the beginning, which draws the same tokens.
        self.backend.configure(policy.execution(policy.widens() && constraint.is_some()))?;
        self.backend.clear_times();
        self.set_flow(&policy, options.logprobs.is_some());
        Ok(Generation {
            prompt: prompt.to_vec(),
            number: self.generations,
            prefilled: false,
            first: First::FromLogits,
            submitted: 0,
            read: 0,
            last: 0,
            device_stop_ids: match policy.stop_check {
                StopCheck::PerToken => answer.stop_ids(),
                StopCheck::PerBurst => Vec::new(),
            },
            answer,
            constraint,
            unfed: Vec::new(),
            banned: biases.filter(|(_, bias)| *bias == f32::NEG_INFINITY).map(|(id, _)| *id).collect(),
            wide_until: None,
            host_draws: false,
            started_ms: None,
            decode_started_ms: 0.0,
            timings: Timings { prompt_tokens: prompt.len(), ..Default::default() },
            stats: Stats::default(),
            invalid_draw: None,
            finish: None,
            pending_error: None,
            failed: false,
            policy,
            options,
        })
    }

    /// Makes the flow control that `policy` asks for; one that fits already keeps what it has learnt. The CPU has no readback to adapt to, and
    /// log-probabilities are read after each step, before the next one replaces the logits.
    fn set_flow(&mut self, policy: &Policy, reads_logits: bool) {
        let single = Flow::Fixed { burst: 1, in_flight: 1 };
        let flow = match policy.flow {
            _ if reads_logits => single,
            Flow::Adaptive { .. } if !self.backend.is_gpu() => single,
            flow => flow,
        };
        let slots = if self.backend.is_gpu() { policy.ring.slots } else { 1 };
        let key = (flow, policy.ring.steps, slots);
        if self.flow.0 != key {
            let control = match flow {
                Flow::Fixed { burst, in_flight } => FlowControl::fixed(burst, in_flight.min(slots)),
                Flow::Adaptive { latency_ms } => FlowControl::adaptive(latency_ms, policy.ring.steps, slots),
            };
            self.flow = (key, control);
        }
        self.flow.1.begin();
    }

    /// Ends the generation under way; what is in flight is discarded.
    pub(super) fn supersede(&mut self) {
        self.generations += 1;
        self.in_flight.clear();
    }

    /// The next tokens, or `None` once the answer has ended. A long prompt is fed a chunk a call, which returns no tokens. Dropping
    /// the generation ends it at any point.
    ///
    /// # Errors
    /// [`Error::Superseded`] where another generation has started since, the sequence was changed, or the future of an earlier call was
    /// dropped while it waited; [`Error::NotFinite`] where the guard tripped,
    /// [`Error::NoCandidate`] where nothing can be drawn, and what the device reports.
    pub async fn next(&mut self, generation: &mut Generation) -> Result<Option<Piece>> {
        if generation.finish.is_some() || generation.failed {
            return Ok(None);
        }
        if generation.number != self.generations {
            return Err(Error::Superseded);
        }
        // Where this future is dropped at one of its waits the generation cannot go on: what it waited for is lost.
        self.generations += 1;
        let piece = match generation.pending_error.take() {
            Some(error) => Err(error),
            None => self.advance(generation).await,
        };
        self.generations -= 1;
        generation.failed = piece.is_err();
        piece.map(Some)
    }

    async fn advance(&mut self, generation: &mut Generation) -> Result<Piece> {
        if !generation.prefilled && !self.prefill(generation).await? {
            return Ok(Piece::default());
        }
        if generation.constraint.is_some() {
            return self.constrained_step(generation).await;
        }
        if generation.host_draws {
            return self.host_step(generation).await;
        }
        self.submit_ahead(generation).await?;
        let Some(oldest) = self.in_flight.pop_front() else {
            return Err(Error::Device { reason: "nothing was left to draw, and the answer has not ended".into() });
        };
        let waited_from = now_ms();
        let drawn = only(oldest.burst.drawn().await?);
        let now = now_ms();
        let stats = &mut generation.stats;
        stats.readback_wait_ms += now - waited_from;
        generation.read += 1;
        stats.latency_ms += (now - oldest.submitted_ms - stats.latency_ms) / generation.read as f64;
        stats.overlapped_bursts += u64::from(!self.in_flight.is_empty());
        self.flow.1.arrived(oldest.steps, now);
        if drawn.end.is_none() && drawn.ids.len() < oldest.steps {
            let reason = format!("{} of {} steps ran although the row had not ended", drawn.ids.len(), oldest.steps);
            return Err(Error::Device { reason });
        }
        self.take(generation, drawn).await
    }

    /// Feeds a chunk of what of the prompt is not cached; at least its last token is fed, whose logits are needed. Returns whether
    /// the prompt is done.
    async fn prefill(&mut self, generation: &mut Generation) -> Result<bool> {
        let prompt = &generation.prompt;
        if generation.started_ms.is_none() {
            generation.started_ms = Some(now_ms());
            let shared = self.cached.iter().zip(prompt).take_while(|(a, b)| a == b).count();
            self.cached.truncate(shared.min(prompt.len() - 1));
            generation.timings.cached_tokens = self.cached.len();
        }
        let rest = &prompt[self.cached.len()..];
        let n = rest.len().min(self.chunk_len(generation.options.chunk));
        let part = &rest[..self.up_to_stop(n, prompt.len())];
        self.feed_next(part).await?;
        self.cached.extend(part);
        self.keep_snapshot(prompt.len())?;
        if part.len() < rest.len() {
            return Ok(false);
        }
        self.backend.head(SLOT, part.len() - 1).await?;
        generation.timings.prefill_ms = generation.elapsed_ms();
        generation.prefilled = true;
        Ok(true)
    }

    /// Keeps the backend busy: submits bursts until enough are in flight or nothing is left to draw. The first burst only
    /// draws, so that the first token comes as soon as it can.
    async fn submit_ahead(&mut self, generation: &mut Generation) -> Result<()> {
        self.narrow(generation)?;
        while self.in_flight.len() < self.flow.1.depth() {
            let n = generation.submitted;
            let (position, steps) = match n {
                0 => (generation.prompt.len(), 1),
                n => {
                    let position = generation.prompt.len() + n - 1;
                    let end = generation.wide_until.unwrap_or(usize::MAX).min(generation.options.max_tokens);
                    let room = self.info.n_ctx - position;
                    (position, self.flow.1.burst().min(end.saturating_sub(n)).min(room))
                }
            };
            if steps == 0 {
                break;
            }
            let row = Row {
                slot: SLOT,
                first: std::mem::replace(&mut generation.first, First::FromState),
                position,
                sampling: &generation.options.sampling,
                stop_ids: &generation.device_stop_ids,
                left: generation.options.max_tokens - n,
                mask: None,
            };
            if n > 0 {
                // A burst that does not follow another one begins where the cache ends.
                if row.first != First::FromState {
                    self.settle().await?;
                }
                self.leave(None);
            }
            let submitted_ms = now_ms();
            let burst = self.backend.submit_burst(Burst { rows: &[row], steps }).await?;
            self.flow.1.submitted(submitted_ms);
            self.in_flight.push_back(super::Flying { burst, steps, submitted_ms });
            generation.submitted += steps;
            let stats = &mut generation.stats;
            stats.bursts += 1;
            stats.record_ms += now_ms() - submitted_ms;
            stats.longest_burst = stats.longest_burst.max(steps);
            stats.deepest = stats.deepest.max(self.in_flight.len());
        }
        Ok(())
    }

    /// Takes what a burst drew, and does what the guard or an invalid id asks for.
    async fn take(&mut self, generation: &mut Generation, mut drawn: Drawn) -> Result<Piece> {
        let n_vocab = self.info.n_vocab;
        let is_invalid = |id: &u32| *id as usize >= n_vocab || generation.banned.contains(id);
        let invalid = drawn.ids.iter().position(is_invalid);
        let invalid_id = invalid.map(|at| drawn.ids[at]);
        drawn.ids.truncate(invalid.unwrap_or(drawn.ids.len()));
        let logprobs = match (generation.options.logprobs, drawn.ids.first()) {
            (Some(n), Some(&id)) => vec![top_logprobs(&self.backend.read_logits(SLOT).await?, id, n)],
            _ => Vec::new(),
        };
        let (is_whole, is_last) = (invalid.is_none() && drawn.is_whole(), self.in_flight.is_empty());
        let piece = self.accept(generation, &drawn.ids, logprobs);
        // What is in flight behind the row's end does nothing.
        if is_whole && (is_last || drawn.end.is_some()) && piece.ids.len() == drawn.ids.len() {
            self.leave(Some(self.cached.len()));
        }
        if generation.finish.is_some() {
            return Ok(piece);
        }
        let recovered = if invalid.is_some() || drawn.end == Some(RowEnd::NoCandidate) {
            self.distrust_device(generation, invalid_id).await
        } else if drawn.end == Some(RowEnd::Guard) {
            self.guard_tripped(generation).await
        } else if let Some(end) = drawn.end {
            Err(Error::Device { reason: format!("the row ended ({end:?}) although the answer had not") })
        } else {
            Ok(())
        };
        match recovered {
            // What was drawn before is shown first.
            Err(error) if !piece.ids.is_empty() => generation.pending_error = Some(error),
            recovered => recovered?,
        }
        Ok(piece)
    }

    /// Takes drawn ids up to the first stop and decides whether the answer has ended. A token was fed when the one after it
    /// has been drawn.
    pub(super) fn accept(&mut self, generation: &mut Generation, ids: &[u32], logprobs: Vec<Logprobs>) -> Piece {
        let mut piece = Piece { logprobs, ..Piece::default() };
        for &id in ids {
            if generation.answer.drawn() == 0 {
                generation.decode_started_ms = now_ms();
                generation.timings.first_token_ms = generation.elapsed_ms();
            } else {
                self.cached.push(generation.last);
            }
            piece.ids.push(id);
            generation.last = id;
            if let Some(reason) = generation.answer.push(&self.tokenizer, id, &mut piece.text) {
                self.end(generation, reason);
                break;
            }
        }
        piece
    }

    pub(super) fn end(&mut self, generation: &mut Generation, stop_reason: StopReason) {
        self.discard(generation);
        generation.timings.decode_tokens = generation.answer.drawn() - 1;
        generation.timings.decode_ms = now_ms() - generation.decode_started_ms;
        generation.stats.ring = self.backend.ring_counters();
        generation.stats.prefill_busy_ms = self.backend.busy_ms(Phase::Prefill);
        generation.stats.decode_busy_ms = self.backend.busy_ms(Phase::Decode);
        generation.finish = Some(Finish {
            stop_reason,
            timings: generation.timings,
            stats: generation.stats,
            invalid_draw: generation.invalid_draw,
        });
    }

    /// Forgets what is in flight.
    pub(super) fn discard(&mut self, generation: &mut Generation) {
        generation.stats.discarded_steps += self.in_flight.drain(..).map(|flying| flying.steps as u64).sum::<u64>();
        generation.submitted = generation.answer.drawn();
        self.flow.1.begin();
    }
}
