//! Times steps by many repetitions of one, for devices whose timestamps are missing or rounded.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytemuck::Zeroable;

use super::backend::GpuBackend;
use super::buffers::write;
use super::floor::{Effort, seconds_each};
use super::params::{RowEntry, RowsHeader, State, state_at};
use super::readback;
use super::recorder::Step;
use super::sampler::{Draws, how};
use crate::engine::backend::Readback;
use crate::engine::clock::now_ms;
use crate::engine::ledger::Sum;
use crate::error::Result;
use crate::plan::Tag;
use crate::sample::Sampling;

/// A batch takes at least this long, and how often it is measured.
const EFFORT: Effort = Effort { min_ms: 15.0, pairs: 3, max_repeats: 1 << 12 };

/// Times of one decode step.
pub(crate) struct Batches {
    /// By step: repetitions in one decode step, and the milliseconds of all of them.
    pub(crate) steps: Vec<(Arc<Tag>, Sum)>,
    /// Milliseconds of the whole step, measured as a whole.
    pub(crate) whole_ms: f64,
}

/// What the sampler's last kernel is called: it moves the row on, all others may run again and again.
const ADVANCES: &str = "sample_finish";

impl GpuBackend {
    /// Times the steps of a decode step whose token is at `position`. Steps of all layers that have the same label are one batch, so that
    /// caches hold as little of their weights as while decoding; each of them is told the mean. The sequence's cache is lost.
    pub(crate) async fn time_batches(&mut self, position: usize) -> Result<Batches> {
        let position = position.min(self.sequence.capacity.n_ctx - 1);
        let mut kinds: BTreeMap<(&'static str, &str), Vec<&Step>> = BTreeMap::new();
        for step in self.decode_steps() {
            kinds.entry((step.tag().op, &step.tag().detail)).or_default().push(step);
        }
        let mut steps = Vec::new();
        let mut advancing_ms = 0.0;
        // The sampler comes first: what repetition does to the hidden state must not reach its logits.
        let (sampler, others): (Vec<_>, Vec<_>) = kinds.into_iter().partition(|((op, _), _)| op.starts_with("sample"));
        for ((op, _), batch) in sampler.into_iter().chain(others) {
            let ms = match op {
                ADVANCES => self.advancing_ms(&batch).await?,
                _ => self.batch_ms(&batch, position, EFFORT.max_repeats).await?,
            };
            advancing_ms += if op == ADVANCES { ms } else { 0.0 };
            let mean = ms / batch.len() as f64;
            steps.extend(batch.iter().map(|step| (step.tag().clone(), Sum { count: 1, ms: mean })));
        }
        let whole: Vec<_> = self.decode_steps().filter(|step| step.tag().op != ADVANCES).collect();
        let whole_ms = self.batch_ms(&whole, position, EFFORT.max_repeats).await? + advancing_ms;
        self.reset_guard(0);
        Ok(Batches { steps, whole_ms })
    }

    /// Every step between one token and the next, as the last draw was.
    fn decode_steps(&self) -> impl Iterator<Item = &Step> {
        let draws = Draws::of([self.slots[0].sampling.as_ref().unwrap_or(&Sampling::GREEDY)]);
        let instance = self.decode.instance(1);
        instance.body.iter().chain(&instance.head).chain(self.decode.sampler.steps(draws))
    }

    /// Milliseconds of one round of `steps`.
    async fn batch_ms(&self, steps: &[&Step], position: usize, max_repeats: usize) -> Result<f64> {
        let effort = Effort { max_repeats: max_repeats.div_ceil(steps.len()), ..EFFORT };
        let seconds = seconds_each(effort, async |n| self.milliseconds(steps, position, n).await);
        Ok(seconds.await? * 1e3)
    }

    /// The same for the step that moves the row on: from the first position, and not further than the sequence and the ring have room.
    async fn advancing_ms(&self, steps: &[&Step]) -> Result<f64> {
        let ring = self.sequence.ring.size();
        let room = (ring.slots * ring.steps).min(self.sequence.capacity.n_ctx);
        self.batch_ms(steps, 0, (room / 2).max(1)).await
    }

    /// Milliseconds from submitting `n` rounds to having read something that they leave behind.
    async fn milliseconds(&self, steps: &[&Step], position: usize, n: usize) -> Result<f64> {
        let how = self.slots[0].sampling.as_ref().map_or(0, |sampling| how(sampling, false));
        self.write_rows(RowsHeader::batch(&[RowEntry { how, ..Zeroable::zeroed() }]));
        let state = State { fed: 1, ..State::at(position) };
        write(&self.gpu, &self.sequence.state, state_at(0), bytemuck::bytes_of(&state));
        let start = now_ms();
        let mut commands = self.commands();
        for _ in 0..n {
            for step in steps {
                commands.record([*step], &[position]);
            }
        }
        commands.copy(&self.sequence.tokens, 0, &self.row_staging, 4);
        commands.submit();
        readback::read(&self.gpu, Readback::Profile, &self.row_staging, 4).await?;
        Ok(now_ms() - start)
    }
}
