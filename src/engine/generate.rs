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
    /// Tokens drawn between two reads of the device, 1 to 64.
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
            burst: 4,
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
    /// Tokens drawn.
    drawn: usize,
    /// The last one, fed by the next burst.
    last: u32,
    decoder: Decoder,
    stop: StopStrings,
    started_ms: f64,
    decode_started_ms: f64,
    timings: Timings,
    finish: Option<Finish>,
}

impl Generation {
    /// How the answer ended, once it has.
    pub fn finish(&self) -> Option<&Finish> {
        self.finish.as_ref()
    }
}

impl Engine {
    /// Checks a request. No work is done before the first `next`.
    pub fn start(&self, prompt: &[u32], options: GenerateOptions) -> Result<Generation> {
        options.check()?;
        let sampling = options.sampling();
        sampling.check(self.info.n_vocab)?;
        self.check_tokens(prompt)?;
        Ok(Generation {
            sampling,
            prompt: prompt.to_vec(),
            drawn: 0,
            last: 0,
            decoder: Decoder::new(),
            stop: StopStrings::new(options.stop.clone()),
            started_ms: now_ms(),
            decode_started_ms: 0.0,
            timings: Timings { prompt_tokens: prompt.len(), ..Default::default() },
            finish: None,
            options,
        })
    }

    /// The next tokens, or `None` once the answer has ended. Dropping the generation ends it at any point.
    pub async fn next(&mut self, generation: &mut Generation) -> Result<Option<Piece>> {
        if generation.finish.is_some() {
            return Ok(None);
        }
        let (ids, fed) = match generation.drawn {
            0 => self.first_token(generation).await?,
            _ => self.decode(generation).await?,
        };
        Ok(Some(self.accept(generation, ids, fed)))
    }

    /// Feeds the prompt and draws the first token.
    async fn first_token(&mut self, generation: &mut Generation) -> Result<(Vec<u32>, usize)> {
        generation.started_ms = now_ms();
        self.prefill(generation).await?;
        generation.timings.prefill_ms = now_ms() - generation.started_ms;
        let ids = self.burst(generation, First::FromLogits, 1).await?;
        generation.decode_started_ms = now_ms();
        generation.timings.first_token_ms = generation.decode_started_ms - generation.started_ms;
        Ok((ids, 0))
    }

    /// Feeds what of the prompt is not cached; at least its last token, whose logits are needed.
    async fn prefill(&mut self, generation: &mut Generation) -> Result<()> {
        let prompt = &generation.prompt;
        let shared = self.cached.iter().zip(prompt).take_while(|(a, b)| a == b).count();
        let keep = shared.min(prompt.len() - 1);
        self.cached.truncate(keep);
        generation.timings.cached_tokens = keep;
        let chunk = self.chunk_len(generation.options.chunk);
        let mut last_len = 0;
        for part in prompt[keep..].chunks(chunk) {
            self.backend.feed(part, self.cached.len()).await?;
            self.cached.extend(part);
            last_len = part.len();
        }
        self.backend.head(last_len - 1).await
    }

    /// Runs a burst; returns the ids and how many of them were also fed.
    async fn decode(&mut self, generation: &mut Generation) -> Result<(Vec<u32>, usize)> {
        let room = self.info.n_ctx - self.cached.len();
        let left = generation.options.max_tokens - generation.drawn;
        let steps = generation.options.burst.min(left).min(room);
        let first = First::Token(generation.last);
        let ids = self.burst(generation, first, steps).await?;
        self.cached.push(generation.last);
        let fed = ids.len() - 1;
        Ok((ids, fed))
    }

    async fn burst(&mut self, generation: &Generation, first: First, steps: usize) -> Result<Vec<u32>> {
        let stop_ids = if generation.options.ignore_eos { &[] } else { self.tokenizer.stop_ids() };
        let request = Burst { first, position: self.cached.len(), steps, sampling: &generation.sampling, stop_ids };
        self.backend.burst(request).await
    }

    /// Takes drawn ids up to the first stop and decides whether the answer has ended.
    fn accept(&mut self, generation: &mut Generation, ids: Vec<u32>, fed: usize) -> Piece {
        let mut piece = Piece::default();
        for (i, &id) in ids.iter().enumerate() {
            piece.ids.push(id);
            generation.drawn += 1;
            generation.last = id;
            let reason = self.stop_reason(generation, id, &mut piece.text);
            if i < fed {
                self.cached.push(id);
            }
            if let Some(reason) = reason {
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

    fn end(&self, generation: &mut Generation, stop_reason: StopReason, piece: &mut Piece) {
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
