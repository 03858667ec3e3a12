//! Bursts: several decode steps in one submit, and several submits in flight.

use super::backend::GpuBackend;
use super::buffers::write;
use super::params::State;
use super::readback::Reading;
use super::recorder::{Recorder, encoder, submit};
use super::sequence::RING;
use crate::engine::backend::{Burst, First};
use crate::error::{Error, Result};

/// Bursts that may be in flight at once.
pub const MAX_IN_FLIGHT: usize = 4;

/// A burst that was submitted. Its tokens are read with [`InFlight::tokens`]; dropping it discards them, and the next burst
/// may then start at any earlier position.
#[must_use = "dropping it discards the tokens"]
pub struct InFlight {
    reading: Reading,
}

impl InFlight {
    /// Waits for the drawn tokens.
    ///
    /// # Errors
    /// `Device` where the device failed.
    pub async fn tokens(self) -> Result<Vec<u32>> {
        Ok(bytemuck::pod_collect_to_vec(&self.reading.finish().await?))
    }
}

impl GpuBackend {
    /// Submits a burst without waiting. A burst that starts with [`First::FromState`] follows the last one submitted, read or
    /// not, so bursts can be in flight one behind the other: every step has its input on the device.
    ///
    /// # Errors
    /// `ContextFull` or `BadToken` for a burst that cannot run, `BadOption` where it has more steps than a submit takes or too many
    /// are in flight.
    pub fn submit_burst(&mut self, burst: Burst<'_>) -> Result<InFlight> {
        let feeds_first = burst.first != First::FromLogits;
        self.check_room(burst.position + burst.steps - usize::from(!feeds_first).min(burst.steps))?;
        if burst.steps == 0 || burst.steps > RING {
            return Err(Error::BadOption {
                option: "burst",
                found: burst.steps.to_string(),
                expected: "1 to 256 steps a submit",
            });
        }
        if let First::Token(id) = burst.first {
            self.check_tokens(&[id])?;
            write(&self.gpu, &self.sequence.token, 0, &id.to_le_bytes());
            self.write_history(&[id], burst.position);
        }
        self.prepare_sampler(burst.sampling)?;
        let Some(staging) = self.token_staging.take() else {
            return Err(Error::BadOption {
                option: "bursts in flight",
                found: (MAX_IN_FLIGHT + 1).to_string(),
                expected: "at most 4",
            });
        };
        let factor = burst.sampling.inverse_temperature();
        self.write_state(State {
            position: burst.position as u32,
            fed: u32::from(feeds_first),
            step: 0,
            greedy: u32::from(factor.is_none()),
            inverse_temperature: factor.unwrap_or(1.0),
            seed_low: burst.sampling.seed as u32,
            seed_high: (burst.sampling.seed >> 32) as u32,
            unused: 0,
        });
        let mut commands = encoder(&self.gpu);
        self.record_burst(Recorder::new(&self.gpu, &mut commands), &burst);
        if burst.steps > usize::from(!feeds_first) {
            self.fed_rows = 1;
        }
        let bytes = (burst.steps * 4) as u64;
        commands.copy_buffer_to_buffer(&self.sequence.ring, 0, &staging, 0, bytes);
        let submission = submit(&self.gpu, commands);
        Ok(InFlight { reading: Reading::pooled(&self.gpu, &self.token_staging, staging, bytes, submission) })
    }

    fn record_burst(&self, mut recorder: Recorder<'_>, burst: &Burst<'_>) {
        let mut position = burst.position;
        let sample = self.sample_steps(burst.sampling);
        for step in 0..burst.steps {
            if step > 0 || burst.first != First::FromLogits {
                recorder.record(&self.decode.body, 1, position);
                recorder.record(&self.decode.head, 1, position);
                position += 1;
            }
            recorder.record(sample, 1, position);
        }
    }

    /// Draws up to `burst.steps` tokens, in as many submits as the ring asks for.
    pub(super) async fn run_burst(&mut self, burst: Burst<'_>) -> Result<Vec<u32>> {
        let mut ids = Vec::with_capacity(burst.steps);
        let mut piece = burst;
        while ids.len() < burst.steps {
            piece.steps = (burst.steps - ids.len()).min(RING);
            let drawn = self.submit_burst(piece)?.tokens().await?;
            let stopped = drawn.iter().any(|id| burst.stop_ids.contains(id));
            ids.extend(drawn);
            if stopped {
                break;
            }
            piece.position += piece.steps - usize::from(piece.first == First::FromLogits);
            piece.first = First::FromState;
        }
        Ok(ids)
    }
}
