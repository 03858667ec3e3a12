//! Answers under a grammar: a mask before each draw, and forced tokens without one.

use super::backend::{Backend, Burst, First, Row, RowEnd, only};
use super::generate::Generation;
use super::options::{Piece, StopReason};
use super::{Engine, SLOT};
use crate::error::{Error, Result};
use crate::grammar::Constraint;
use crate::sample::top_logprobs;

/// A drawn token and those that the grammar forces after it, at most `most` in all.
///
/// # Errors
/// `Grammar` where the token does not continue the text.
pub(super) fn follow(constraint: &mut Constraint, id: u32, most: usize) -> Result<Vec<u32>> {
    constraint.accept(id)?;
    let mut ids = vec![id];
    while ids.len() < most {
        let forced = constraint.forced();
        if forced.is_empty() {
            break;
        }
        for id in forced.into_iter().take(most - ids.len()) {
            constraint.accept(id)?;
            ids.push(id);
        }
    }
    Ok(ids)
}

impl Engine {
    /// Feeds what is not in the cache yet and draws one token under the mask.
    pub(super) async fn constrained_step(&mut self, generation: &mut Generation) -> Result<Piece> {
        let unfed = std::mem::take(&mut generation.unfed);
        let mut last = None;
        for part in unfed.chunks(self.chunk_len(0)) {
            self.feed_next(part).await?;
            self.cached.extend(part);
            last = Some(part.len() - 1);
        }
        if let Some(last) = last {
            self.backend.head(SLOT, last).await?;
        }
        let constraint = generation.constraint.as_mut().expect("the answer has one");
        let position = self.cached.len();
        let row = Row::new(SLOT, First::FromLogits, position, &generation.options.sampling);
        let row = Row { mask: Some(constraint.mask()?), ..row };
        let drawn = only(self.backend.burst(Burst { rows: &[row], steps: 1 }).await?);
        generation.stats.bursts += 1;
        let Some(&id) = drawn.ids.first() else {
            if drawn.end == Some(RowEnd::Guard)
                && let Some(trip) = self.backend.take_trip(SLOT).await?
            {
                return Err(self.not_finite(trip));
            }
            return Err(Error::NoCandidate { position, n_vocab: self.info.n_vocab });
        };
        let logprobs = match generation.options.logprobs {
            Some(n) => vec![top_logprobs(&self.backend.read_logits(SLOT).await?, id, n)],
            None => Vec::new(),
        };
        // Each token that is told has its log-probability, so with them every token is drawn.
        let most = if generation.options.logprobs.is_some() { 1 } else { generation.answer.room() };
        let constraint = generation.constraint.as_mut().expect("the answer has one");
        let ids = follow(constraint, id, most)?;
        let is_finished = constraint.is_finished();
        let mut piece = self.accept(generation, &ids, logprobs);
        // That counts tokens as fed that are not.
        self.cached.truncate(position);
        generation.unfed.extend(&piece.ids);
        if is_finished && generation.finish().is_none() {
            generation.answer.flush(&mut piece.text);
            self.end(generation, StopReason::GrammarEnd);
        }
        Ok(piece)
    }
}
