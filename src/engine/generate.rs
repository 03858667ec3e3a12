//! One request: prefill the prompt, then bursts until something stops it.

use std::collections::BTreeSet;

use serde::Serialize;

use super::Engine;
use super::backend::{Backend, Burst, First};
use super::clock::now_ms;
use super::stop::StopStrings;
use crate::error::{Error, Result};
use crate::sample::Sampling;
use crate::tokenizer::Decoder;

/// What is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerateOptions {
    /// Most tokens drawn, at least 1.
    pub max_tokens: usize,
    /// Divides the logits, 0 to 100; below 0.01 the largest logit wins.
    pub temperature: f32,
    /// Key of the random numbers.
    pub seed: u64,
    /// The likeliest tokens kept; 0 keeps all, 1 is greedy.
    pub top_k: u32,
    /// The probability mass kept, above 0; 1 keeps all.
    pub top_p: f32,
    /// The least probability kept, relative to the largest one, 0 to 1; 0 keeps all.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of recent tokens, 0.01 to 100; 1 changes nothing.
    pub repeat_penalty: f32,
    /// Subtracted from a logit each time its token is among the recent ones, -100 to 100.
    pub frequency_penalty: f32,
    /// Subtracted from the logits of recent tokens, -100 to 100.
    pub presence_penalty: f32,
    /// How many tokens, prompt included, are recent: at most 4096.
    pub penalty_window: usize,
    /// Token ids, each once, and what is added to their logits, -1000 to 1000. At most 1024 together with `suppress`.
    pub logit_bias: Vec<(u32, f32)>,
    /// Token ids that are never drawn.
    pub suppress: Vec<u32>,
    /// Texts that end the answer; not shown.
    pub stop: Vec<String>,
    /// Tokens a submit draws, 1 to 64. A GPU has several submits in flight, so single steps lose no speed.
    pub burst: usize,
    /// Prompt tokens fed at once; 0 leaves it to the backend.
    pub chunk: usize,
    /// Goes on after a token that ends the answer: for measuring.
    pub ignore_eos: bool,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        GenerateOptions {
            max_tokens: 256,
            temperature: 0.0,
            seed: 0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repeat_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            penalty_window: 64,
            logit_bias: Vec::new(),
            suppress: Vec::new(),
            stop: Vec::new(),
            burst: 1,
            chunk: 0,
            ignore_eos: false,
        }
    }
}

/// Most steps of one burst.
const MAX_BURST: usize = 64;

impl GenerateOptions {
    fn check(&self) -> Result<()> {
        let bad = |option, found: String, expected| Err(Error::BadOption { option, found, expected });
        if self.max_tokens == 0 {
            return bad("max tokens", "0".into(), "at least 1");
        }
        if !(1..=MAX_BURST).contains(&self.burst) {
            return bad("burst", self.burst.to_string(), "1 to 64");
        }
        if self.stop.iter().any(String::is_empty) {
            return bad("stop", "an empty string".into(), "non-empty strings");
        }
        Ok(())
    }

    /// How tokens are drawn. A token that is suppressed as well as biased is suppressed.
    fn sampling(&self) -> Sampling {
        let suppressed: BTreeSet<u32> = self.suppress.iter().copied().collect();
        let mut biases = self.logit_bias.clone();
        biases.retain(|(id, _)| !suppressed.contains(id));
        biases.extend(suppressed.into_iter().map(|id| (id, f32::NEG_INFINITY)));
        Sampling {
            temperature: self.temperature,
            seed: self.seed,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            typical_p: 1.0,
            repeat_penalty: self.repeat_penalty,
            frequency_penalty: self.frequency_penalty,
            presence_penalty: self.presence_penalty,
            penalty_window: self.penalty_window,
            biases,
        }
    }
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model drew an end token.
    Eos,
    /// A stop string appeared.
    StopString,
    /// The token limit was reached.
    MaxTokens,
    /// The context is full.
    ContextFull,
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

/// Tokens that arrived together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Piece {
    /// The ids, an end token included.
    pub ids: Vec<u32>,
    /// The text that can be shown: whole characters, no control tokens, nothing of a stop string.
    pub text: String,
}

/// How an answer ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Finish {
    /// Why.
    pub stop_reason: StopReason,
    /// Where the time went.
    pub timings: Timings,
}

/// A request in progress.
pub struct Generation {
    options: GenerateOptions,
    sampling: Sampling,
    prompt: Vec<u32>,
    /// Which of the engine's generations this is.
    number: u64,
    /// Tokens whose draw was submitted.
    submitted: usize,
    /// Tokens drawn and read.
    drawn: usize,
    /// The last one read.
    last: u32,
    decoder: Decoder,
    stop: StopStrings,
    /// When the prompt's first chunk was fed.
    started_ms: Option<f64>,
    decode_started_ms: f64,
    timings: Timings,
    finish: Option<Finish>,
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
    pub fn start(&mut self, prompt: &[u32], options: GenerateOptions) -> Result<Generation> {
        options.check()?;
        let sampling = options.sampling();
        sampling.check(self.info.n_vocab)?;
        self.check_tokens(prompt)?;
        self.supersede();
        Ok(Generation {
            sampling,
            prompt: prompt.to_vec(),
            number: self.generations,
            submitted: 0,
            drawn: 0,
            last: 0,
            decoder: Decoder::new(),
            stop: StopStrings::new(options.stop.clone()),
            started_ms: None,
            decode_started_ms: 0.0,
            timings: Timings { prompt_tokens: prompt.len(), ..Default::default() },
            finish: None,
            options,
        })
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
    /// [`Error::Superseded`] where another generation has started since, and what the device reports.
    pub async fn next(&mut self, generation: &mut Generation) -> Result<Option<Piece>> {
        if generation.finish.is_some() {
            return Ok(None);
        }
        if generation.number != self.generations {
            return Err(Error::Superseded);
        }
        if generation.submitted == 0 && !self.prefill(generation).await? {
            return Ok(Some(Piece::default()));
        }
        self.submit_ahead(generation).await?;
        let Some(oldest) = self.in_flight.pop_front() else { return Ok(None) };
        // Until the tokens are there the generation cannot go on: it would miss them if this future were dropped.
        self.generations += 1;
        let ids = oldest.tokens().await?;
        self.generations -= 1;
        if generation.drawn == 0 {
            generation.decode_started_ms = now_ms();
            generation.timings.first_token_ms = generation.elapsed_ms();
        }
        Ok(Some(self.accept(generation, &ids)))
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
        let part = &rest[..rest.len().min(self.chunk_len(generation.options.chunk))];
        self.backend.feed(part, self.cached.len()).await?;
        self.cached.extend(part);
        if part.len() < rest.len() {
            return Ok(false);
        }
        self.backend.head(part.len() - 1).await?;
        generation.timings.prefill_ms = generation.elapsed_ms();
        Ok(true)
    }

    /// Keeps the backend busy: submits bursts until enough are in flight or nothing is left to draw. The first burst only
    /// draws, so that the first token comes as soon as it can.
    async fn submit_ahead(&mut self, generation: &mut Generation) -> Result<()> {
        while self.in_flight.len() < self.backend.max_in_flight() {
            let (first, position, steps) = match generation.submitted {
                0 => (First::FromLogits, generation.prompt.len(), 1),
                n => {
                    let position = generation.prompt.len() + n - 1;
                    let left = generation.options.max_tokens - n;
                    let room = self.info.n_ctx - position;
                    (First::FromState, position, generation.options.burst.min(left).min(room))
                }
            };
            if steps == 0 {
                break;
            }
            let stop_ids = if generation.options.ignore_eos { &[] } else { self.tokenizer.stop_ids() };
            let burst = Burst { first, position, steps, sampling: &generation.sampling, stop_ids };
            let burst = self.backend.submit_burst(burst).await?;
            self.in_flight.push_back(burst);
            generation.submitted += steps;
        }
        Ok(())
    }

    /// Takes drawn ids up to the first stop and decides whether the answer has ended. A token was fed when the one after it
    /// has been drawn.
    fn accept(&mut self, generation: &mut Generation, ids: &[u32]) -> Piece {
        let mut piece = Piece::default();
        for &id in ids {
            if generation.drawn > 0 {
                self.cached.push(generation.last);
            }
            piece.ids.push(id);
            generation.drawn += 1;
            generation.last = id;
            if let Some(reason) = self.stop_reason(generation, id, &mut piece.text) {
                self.end(generation, reason, &mut piece);
                break;
            }
        }
        piece
    }

    /// Shows the token's text and says whether the answer ends with it.
    fn stop_reason(&self, generation: &mut Generation, id: u32, shown: &mut String) -> Option<StopReason> {
        if self.tokenizer.is_eog(id) && !generation.options.ignore_eos {
            return Some(StopReason::Eos);
        }
        let text = generation.decoder.push(&self.tokenizer, id);
        let (text, met) = generation.stop.push(&text);
        shown.push_str(&text);
        let next_position = generation.prompt.len() + generation.drawn;
        if met {
            Some(StopReason::StopString)
        } else if generation.drawn == generation.options.max_tokens {
            Some(StopReason::MaxTokens)
        } else if next_position > self.info.n_ctx {
            Some(StopReason::ContextFull)
        } else {
            None
        }
    }

    fn end(&mut self, generation: &mut Generation, stop_reason: StopReason, piece: &mut Piece) {
        self.in_flight.clear();
        if stop_reason != StopReason::StopString {
            let (text, met) = generation.stop.push(&generation.decoder.finish());
            piece.text.push_str(&text);
            if !met {
                piece.text.push_str(&generation.stop.finish());
            }
        }
        generation.timings.decode_tokens = generation.drawn - 1;
        generation.timings.decode_ms = now_ms() - generation.decode_started_ms;
        generation.finish = Some(Finish { stop_reason, timings: generation.timings });
    }
}
