//! What a generation does where the guard tripped or the device drew an id that cannot be.

use super::Engine;
use super::backend::{Backend, First, Trip};
use super::generate::Generation;
use super::options::{InvalidDraw, Piece};
use super::policy::Reaction;
use crate::error::{Error, Result};
use crate::sample::{draw, top_logprobs};

impl Engine {
    /// Ends the generation with an error, or lifts the limit for a while and has the step done again.
    pub(super) async fn guard_tripped(&mut self, generation: &mut Generation) -> Result<()> {
        generation.stats.guard_trips += 1;
        self.discard(generation);
        let Some(trip) = self.backend.take_trip().await? else {
            return Err(Error::Device { reason: "the guard tripped and does not say where".into() });
        };
        let window = match generation.policy.guard.map(|guard| guard.reaction) {
            Some(Reaction::Widen { window }) if !trip.not_finite && generation.wide_until.is_none() => window.max(1),
            _ => return Err(self.not_finite(trip)),
        };
        generation.stats.widened += 1;
        generation.wide_until = Some(generation.drawn + window);
        self.backend.configure(generation.policy.execution(true))?;
        self.restart(generation);
        Ok(())
    }

    /// The error of a trip, whose token and those after it leave the sequence.
    pub(super) fn not_finite(&mut self, trip: Trip) -> Error {
        self.cached.truncate(trip.position);
        Error::NotFinite { layer: trip.layer, position: trip.position, not_finite: trip.not_finite }
    }

    /// Brings the guard's limit back.
    pub(super) fn narrow(&mut self, generation: &mut Generation) -> Result<()> {
        generation.wide_until = None;
        self.backend.configure(generation.policy.execution(false))?;
        self.restart(generation);
        Ok(())
    }

    /// The next burst feeds the last token again; before the first one the prompt is fed again.
    fn restart(&mut self, generation: &mut Generation) {
        if generation.drawn == 0 {
            self.cached.truncate(generation.timings.cached_tokens);
            generation.prefilled = false;
            generation.first = First::FromLogits;
        } else {
            generation.first = First::Token(generation.last);
        }
    }

    /// From now on the host draws. `id` is what the device gave, if anything.
    pub(super) async fn distrust_device(&mut self, generation: &mut Generation, id: Option<u32>) -> Result<()> {
        self.discard(generation);
        generation.stats.fallbacks += 1;
        generation.host_draws = true;
        let logits = self.logits_again(generation).await?;
        generation.invalid_draw.get_or_insert(describe(&logits, id, generation.position()));
        Ok(())
    }

    /// One step whose token the host draws.
    pub(super) async fn host_step(&mut self, generation: &mut Generation) -> Result<Piece> {
        let logits = self.logits_again(generation).await?;
        if let Some(trip) = self.backend.take_trip().await? {
            generation.stats.guard_trips += 1;
            return Err(self.not_finite(trip));
        }
        let position = generation.position();
        let mut history = self.cached.clone();
        if generation.drawn > 0 {
            history.push(generation.last);
        }
        let id = draw(&logits, &generation.options.sampling, position as u32, &history);
        let id = id.ok_or(Error::NoCandidate { position, n_vocab: self.info.n_vocab })?;
        let logprobs = generation.options.logprobs.map(|n| top_logprobs(&logits, id, n)).into_iter().collect();
        Ok(self.accept(generation, &[id], logprobs))
    }

    /// Feeds the last token again and reads the logits after it.
    async fn logits_again(&mut self, generation: &Generation) -> Result<Vec<f32>> {
        let last = if generation.drawn == 0 { generation.prompt[generation.prompt.len() - 1] } else { generation.last };
        self.backend.feed(&[last], generation.position() - 1).await?;
        self.backend.head(0).await?;
        self.backend.read_logits().await
    }
}

fn describe(logits: &[f32], id: Option<u32>, position: usize) -> InvalidDraw {
    let finite = || logits.iter().copied().filter(|l| l.is_finite());
    let count = finite().count();
    InvalidDraw {
        id,
        position,
        least: finite().fold(f32::MAX, f32::min),
        largest: finite().fold(f32::MIN, f32::max),
        mean: finite().map(f64::from).sum::<f64>() / count.max(1) as f64,
        not_finite: logits.len() - count,
    }
}
