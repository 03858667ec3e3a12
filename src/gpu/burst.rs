//! Bursts: several decode steps in one submit, and several submits in flight.

use super::backend::GpuBackend;
use super::buffers::write;
use super::params::State;
use super::readback::Reading;
use super::recorder::Commands;
use super::ring::Slot;
use super::timing::{SharedLedger, Times};
use crate::engine::backend::{Burst, Drawn, First};
use crate::engine::ledger::Phase;
use crate::error::Result;

/// A burst that was submitted. Its tokens are read with [`InFlight::drawn`]; dropping it discards them, and the next burst
/// may then start at any earlier position.
#[must_use = "dropping it discards the tokens"]
pub struct InFlight {
    // Dropped before the slot, whose buffer it maps.
    reading: Reading,
    _slot: Slot,
    /// Times of what led to the burst, and its own.
    times: Vec<Times>,
    /// Where its tokens are counted, where it is timed.
    ledger: Option<SharedLedger>,
    phase: Phase,
}

impl InFlight {
    /// Waits for what was drawn.
    ///
    /// # Errors
    /// `Device` where the device failed.
    pub async fn drawn(self) -> Result<Drawn> {
        let words: Vec<u32> = bytemuck::pod_collect_to_vec(&self.reading.finish().await?);
        for times in self.times {
            times.finish().await?;
        }
        let drawn = Drawn::from_words(&words);
        if let Some(ledger) = self.ledger.filter(|_| self.phase == Phase::Decode) {
            ledger.add_tokens(self.phase, drawn.ids.len());
        }
        Ok(drawn)
    }
}

impl GpuBackend {
    /// Submits a burst without waiting. A burst that starts with [`First::FromState`] follows the last one submitted, read or
    /// not, so bursts can be in flight one behind the other: every step has its input on the device.
    ///
    /// # Errors
    /// `ContextFull` or `BadToken` for a burst that cannot run, `BadOption` where it has no steps, more than the ring's slots hold, or
    /// too many stop ids, `RingFull` where too many are in flight.
    pub fn submit_burst(&mut self, burst: Burst<'_>) -> Result<InFlight> {
        let feeds_first = burst.first != First::FromLogits;
        burst.check(self.limits())?;
        self.sequence.ring.check_free()?;
        let draws_anew = self.prepare_sampler(burst.sampling)?;
        let slot = self.sequence.ring.acquire()?;
        let stops_anew = self.stops != burst.stop_ids;
        if stops_anew {
            write(&self.gpu, &self.sequence.stops, 0, bytemuck::cast_slice(burst.stop_ids));
            self.stops = burst.stop_ids.to_vec();
        }
        if let First::Token(id) = burst.first {
            write(&self.gpu, &self.sequence.token, 0, &id.to_le_bytes());
            self.write_history(&[id], burst.position);
        }
        let state = State {
            fed: u32::from(feeds_first),
            step: slot.first_word() as u32,
            left: u32::try_from(burst.left).unwrap_or(u32::MAX),
            n_ctx: self.sequence.n_ctx as u32,
            limit: self.limit_bits(),
            n_stops: burst.stop_ids.len() as u32,
            ..State::at(burst.position)
        };
        let state = state.drawing(burst.sampling);
        if burst.first == First::FromState {
            // The rest is on the device.
            write(&self.gpu, &self.sequence.state, State::STEP_AT, &state.step.to_le_bytes());
            if draws_anew || stops_anew {
                let settings = &bytemuck::bytes_of(&state)[State::SETTINGS_AT as usize..];
                write(&self.gpu, &self.sequence.state, State::SETTINGS_AT, settings);
            }
        } else {
            self.write_state(state);
        }
        let phase = burst.phase();
        let mut commands = self.timed_commands(phase);
        self.record_burst(&mut commands, &burst);
        if burst.steps > usize::from(!feeds_first) {
            self.fed_rows = 1;
            self.fed_position = burst.position + burst.steps - 1 - usize::from(!feeds_first);
        }
        let first_word = slot.first_word() as u64;
        commands.copy(self.sequence.ring.words(), first_word * 4, slot.staging(), (burst.steps * 4) as u64);
        let (submission, own_times) = commands.submit_timed()?;
        let reading = slot.read(&self.gpu, burst.steps, submission)?;
        let mut times = self.timers.take_pending();
        times.extend(own_times);
        Ok(InFlight { reading, _slot: slot, times, ledger: self.timers.ledger().cloned(), phase })
    }

    fn record_burst(&self, commands: &mut Commands, burst: &Burst<'_>) {
        let mut position = burst.position;
        let sample = self.sample_steps(burst.sampling);
        for step in 0..burst.steps {
            if step > 0 || burst.first != First::FromLogits {
                commands.record(&self.decode.body, 1, position);
                commands.record(&self.decode.head, 1, position);
                position += 1;
            }
            commands.record(sample, 1, position);
        }
    }
}
