//! Single steps on the engine's sequence, for callers that decide themselves what comes next. They are the steps that generations are
//! made of, with the same bits.

use std::ops::Range;

use super::backend::{Backend, Burst, Drawn, First, Row, RowEnd, only};
use super::{Engine, SLOT};
use crate::error::{Error, Result};
use crate::sample::Sampling;

/// How the hidden states of several tokens become one embedding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pooling {
    /// The last token's.
    Last,
    /// Their mean, summed in ascending order in f32.
    Mean,
    /// All of them, one after another.
    None,
}

impl Pooling {
    /// The rows needed of a chunk of `n` tokens, which ends the text or not.
    pub(super) fn rows(self, n: usize, is_end: bool) -> Range<usize> {
        if self == Pooling::Last { n - usize::from(is_end)..n } else { 0..n }
    }

    /// Adds the next of these rows to what was pooled.
    pub(super) fn add(self, pooled: &mut Vec<f32>, state: &[f32]) {
        match self {
            Pooling::Mean if !pooled.is_empty() => pooled.iter_mut().zip(state).for_each(|(sum, x)| *sum += x),
            _ => pooled.extend(state),
        }
    }

    /// The embedding of `n` tokens.
    pub(super) fn finish(self, mut pooled: Vec<f32>, n: usize) -> Vec<f32> {
        if self == Pooling::Mean {
            pooled.iter_mut().for_each(|sum| *sum /= n as f32);
        }
        pooled
    }
}

/// The logits of a step.
#[derive(Debug, Clone)]
pub struct LogitsRow {
    /// `[n_vocab]`.
    pub values: Vec<f32>,
    /// Vocabulary size.
    pub n_vocab: usize,
    /// Type of a value on the device.
    pub dtype: &'static str,
    /// Where they lie on the device until the next step, on a GPU.
    pub buffer: Option<crate::gpu::driver::Buffer>,
}

impl Engine {
    /// Tokens in the cache: the position of the next one.
    pub fn position(&self) -> usize {
        self.cached.len()
    }

    /// Forgets the tokens from `position` on; a generation under way ends.
    pub fn rewind(&mut self, position: usize) {
        self.supersede();
        self.cached.truncate(position);
    }

    /// Feeds `token` and draws the next one.
    ///
    /// # Errors
    /// Those of [`Engine::decode_burst`], and [`Error::NoCandidate`] where nothing can be drawn.
    pub async fn decode_step(&mut self, token: u32, sampling: &Sampling) -> Result<u32> {
        let drawn = self.decode_burst(token, 1, sampling, &[]).await?;
        drawn
            .ids
            .first()
            .copied()
            .ok_or(Error::NoCandidate { position: self.position() + 1, n_vocab: self.info.n_vocab })
    }

    /// Feeds `token` and draws up to `steps` tokens in one submit, feeding each but the last. The row ends early after one of `stop_ids`, or
    /// where the context is full.
    ///
    /// # Errors
    /// [`Error::BadOption`] where there are no steps or more than the ring holds, [`Error::ContextFull`], [`Error::BadToken`], and
    /// [`Error::NotFinite`] where the guard tripped: the sequence is then as it was before the call.
    pub async fn decode_burst(
        &mut self,
        token: u32,
        steps: usize,
        sampling: &Sampling,
        stop_ids: &[u32],
    ) -> Result<Drawn> {
        let position = self.cached.len();
        let row = Row { stop_ids, ..Row::new(SLOT, First::Token(token), position, sampling) };
        Burst { rows: &[row], steps }.check_shape(self.policy.ring.steps)?;
        self.begin_steps(&[token])?;
        // Steps beyond the context would do nothing.
        let steps = steps.min(self.info.n_ctx - position);
        self.settle().await?;
        self.leave(None);
        let drawn = only(self.backend.burst(Burst { rows: &[row], steps }).await?);
        // The first token, and each drawn one that another was drawn after.
        if !drawn.ids.is_empty() {
            self.cached.push(token);
            self.cached.extend(&drawn.ids[..drawn.ids.len() - 1]);
            if drawn.is_whole() {
                self.leave(Some(self.cached.len()));
            }
        }
        if drawn.end == Some(RowEnd::Guard) {
            self.cached.truncate(position);
            self.check_guard().await?;
        }
        Ok(drawn)
    }

    /// Feeds `token` and reads the logits after it.
    ///
    /// # Errors
    /// Those of [`Engine::advance_with_token`].
    pub async fn decode_step_logits(&mut self, token: u32) -> Result<LogitsRow> {
        self.begin_steps(&[token])?;
        self.feed_next(&[token]).await?;
        self.backend.head(SLOT, 0).await?;
        self.check_guard().await?;
        let values = self.backend.read_logits(SLOT).await?;
        self.cached.push(token);
        let buffer = self.backend.logits_buffer();
        Ok(LogitsRow { n_vocab: values.len(), values, dtype: "f32", buffer })
    }

    /// Feeds `token` and computes no logits.
    ///
    /// # Errors
    /// [`Error::BadToken`], [`Error::ContextFull`], and [`Error::NotFinite`] where the guard tripped: the token is then not in the sequence.
    pub async fn advance_with_token(&mut self, token: u32) -> Result<()> {
        self.begin_steps(&[token])?;
        self.feed_next(&[token]).await?;
        self.check_guard().await?;
        self.cached.push(token);
        Ok(())
    }

    /// Feeds `tokens` and gives their hidden states after the output norm: `[d]`, or `[tokens, d]` without pooling.
    ///
    /// # Errors
    /// Those of [`Engine::advance_with_token`], and [`Error::BadOption`] where there are no tokens.
    pub async fn advance_with_embedding(&mut self, tokens: &[u32], pooling: Pooling) -> Result<Vec<f32>> {
        self.begin_steps(tokens)?;
        let start = self.cached.len();
        let mut pooled = Vec::new();
        for part in tokens.chunks(self.chunk_len(0)) {
            self.feed_next(part).await?;
            self.cached.extend(part);
            let is_end = self.cached.len() == start + tokens.len();
            for row in pooling.rows(part.len(), is_end) {
                pooling.add(&mut pooled, &self.backend.embedding(row).await?);
            }
        }
        self.check_guard().await?;
        Ok(pooling.finish(pooled, tokens.len()))
    }

    /// Checks tokens to be fed next and ends the generation under way.
    fn begin_steps(&mut self, tokens: &[u32]) -> Result<()> {
        self.check_tokens(tokens)?;
        let needed = self.cached.len() + tokens.len();
        if needed > self.info.n_ctx {
            return Err(Error::ContextFull { needed, limit: self.info.n_ctx });
        }
        self.supersede();
        self.backend.configure(self.policy.execution(false))
    }

    pub(super) async fn check_guard(&mut self) -> Result<()> {
        if self.policy.guard.is_none() {
            return Ok(());
        }
        match self.backend.take_trip(SLOT).await? {
            None => Ok(()),
            Some(trip) => Err(self.not_finite(trip)),
        }
    }
}
