//! What a generation does where the guard tripped or the device drew an id that cannot be.

use super::backend::{Backend, First, Trip};
use super::generate::Generation;
use super::options::{InvalidDraw, Piece};
use super::policy::Reaction;
use super::{Engine, SLOT};
use crate::error::{Error, Result};
use crate::sample::{draw, top_logprobs};

impl Engine {
    /// What is in flight behind a trip is dropped; then as [`Engine::react`].
    pub(super) async fn guard_tripped(&mut self, generation: &mut Generation) -> Result<()> {
        self.discard(generation);
        match self.backend.take_trip(SLOT).await? {
            Some(trip) => self.react(generation, trip),
            None => Err(Error::Device { reason: "the guard tripped and does not say where".into() }),
        }
    }

    /// Ends the generation with an error, or lifts the limit for a while and has the step done again.
    fn react(&mut self, generation: &mut Generation, trip: Trip) -> Result<()> {
        generation.stats.guard_trips += 1;
        let window = match generation.policy.guard.map(|guard| guard.reaction) {
            Some(Reaction::Widen { window }) if !trip.not_finite && generation.wide_until.is_none() => window.max(1),
            _ => return Err(self.not_finite(trip)),
        };
        generation.stats.widened += 1;
        generation.wide_until = Some(generation.answer.drawn().saturating_add(window));
        self.backend.configure(generation.policy.execution(true))?;
        self.restart(generation);
        Ok(())
    }

    /// The error of a trip, whose token and those after it leave the sequence.
    pub(super) fn not_finite(&mut self, trip: Trip) -> Error {
        self.cached.truncate(trip.position);
        trip.into()
    }

    /// Brings the guard's limit back where it was lifted for long enough.
    pub(super) fn narrow(&mut self, generation: &mut Generation) -> Result<()> {
        if generation.wide_until.is_none_or(|until| generation.answer.drawn() < until) {
            return Ok(());
        }
        generation.wide_until = None;
        self.backend.configure(generation.policy.execution(false))?;
        self.restart(generation);
        Ok(())
    }

    /// The next burst feeds the last token again; before the first one the prompt is fed again.
    fn restart(&mut self, generation: &mut Generation) {
        if generation.answer.drawn() == 0 {
            self.cached.truncate(generation.timings.cached_tokens);
            generation.prefilled = false;
            generation.first = First::FromLogits;
        } else {
            generation.first = First::Token(generation.last);
        }
    }

    /// From now on the host draws. `id` is what the device gave, if anything. Where the host drew already there is nobody else to ask.
    pub(super) async fn distrust_device(&mut self, generation: &mut Generation, id: Option<u32>) -> Result<()> {
        if !self.backend.is_gpu() {
            return Err(Error::NoCandidate { position: generation.answer.position(), n_vocab: self.info.n_vocab });
        }
        self.discard(generation);
        generation.stats.fallbacks += 1;
        generation.host_draws = true;
        let logits = self.logits_again(generation).await?;
        generation.invalid_draw.get_or_insert(describe(&logits, id, generation.answer.position()));
        Ok(())
    }

    /// One step whose token the host draws.
    pub(super) async fn host_step(&mut self, generation: &mut Generation) -> Result<Piece> {
        self.narrow(generation)?;
        let logits = self.logits_again(generation).await?;
        if let Some(trip) = self.backend.take_trip(SLOT).await? {
            self.react(generation, trip)?;
            return Ok(Piece::default());
        }
        let position = generation.answer.position();
        let mut history = self.cached.clone();
        if generation.answer.drawn() > 0 {
            history.push(generation.last);
        }
        let id = draw(&logits, &generation.options.sampling, position as u32, &history, None);
        let id = id.ok_or(Error::NoCandidate { position, n_vocab: self.info.n_vocab })?;
        let logprobs = generation.options.logprobs.map(|n| top_logprobs(&logits, id, n)).into_iter().collect();
        Ok(self.accept(generation, &[id], logprobs))
    }

    /// Feeds the last token again and reads the logits after it.
    async fn logits_again(&mut self, generation: &Generation) -> Result<Vec<f32>> {
        let is_cached = generation.answer.drawn() == 0;
        let last = if is_cached { generation.prompt[generation.prompt.len() - 1] } else { generation.last };
        self.cached.truncate(generation.answer.position() - 1);
        self.feed_next(&[last]).await?;
        self.cached.extend(is_cached.then_some(last));
        self.backend.head(SLOT, 0).await?;
        self.backend.read_logits(SLOT).await
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
