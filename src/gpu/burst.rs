//! Bursts: several decode steps of several rows in one submit, and several submits in flight.

use super::backend::GpuBackend;
use super::buffers::write;
use super::params::{RowEntry, RowsHeader, State, state_at};
use super::readback::Reading;
use super::recorder::Commands;
use super::ring::Slot;
use super::sampler::{Draws, how};
use super::timing::{SharedLedger, Times};
use crate::engine::backend::{Burst, Drawn, First, MAX_STOP_IDS, Row};
use crate::engine::ledger::Phase;
use crate::error::Result;

/// A burst that was submitted. Its tokens are read with [`InFlight::drawn`]; dropping it discards them, and the next burst
/// may then start at any earlier position.
#[must_use = "dropping it discards the tokens"]
pub struct InFlight {
    // Dropped before the slot, whose buffer it maps.
    reading: Reading,
    _slot: Slot,
    n_rows: usize,
    /// Times of what led to the burst, and its own.
    times: Vec<Times>,
    /// Where its tokens are counted, where it is timed.
    ledger: Option<SharedLedger>,
    phase: Phase,
}

impl InFlight {
    /// Waits for what was drawn, by row.
    ///
    /// # Errors
    /// `Device` where the device failed.
    pub async fn drawn(self) -> Result<Vec<Drawn>> {
        let words: Vec<u32> = bytemuck::pod_collect_to_vec(&self.reading.finish().await?);
        for times in self.times {
            times.finish().await?;
        }
        let of_row = |row| Drawn::from_words(words.iter().copied().skip(row).step_by(self.n_rows));
        let drawn: Vec<Drawn> = (0..self.n_rows).map(of_row).collect();
        if let Some(ledger) = self.ledger.filter(|_| self.phase == Phase::Decode) {
            ledger.add_tokens(self.phase, drawn.iter().map(|drawn| drawn.ids.len()).sum());
        }
        Ok(drawn)
    }
}

impl GpuBackend {
    /// Submits a burst without waiting. Rows that start with [`First::FromState`] follow the last burst of their slot, read or
    /// not, so bursts can be in flight one behind the other: every step has its input on the device.
    ///
    /// # Errors
    /// `ContextFull` or `BadToken` for a burst that cannot run, `BadOption` where it has no rows or steps, more than there is room for, or
    /// too many stop ids, `RingFull` where too many are in flight.
    pub fn submit_burst(&mut self, burst: Burst<'_>) -> Result<InFlight> {
        burst.check(self.limits(), &self.sequence.tables)?;
        self.sequence.ring.check_free()?;
        let n_rows = burst.rows.len();
        let draws = Draws::of(burst.rows.iter().map(|row| row.sampling));
        self.prepare_sampler(draws)?;
        let ring_slot = self.sequence.ring.acquire()?;
        let mut entries = Vec::with_capacity(n_rows);
        for (at, row) in burst.rows.iter().enumerate() {
            self.write_row(row);
            let draws = &mut self.slots[row.slot].draws;
            let before = (*draws).wrapping_mul(n_rows as u32);
            *draws = draws.wrapping_add(burst.steps as u32);
            entries.push(RowEntry {
                slot: row.slot as u32,
                first_word: ((ring_slot.first_word() + at) as u32).wrapping_sub(before),
                how: how(row.sampling, row.mask.is_some()),
                pad: 0,
            });
        }
        self.write_rows(RowsHeader::batch(&entries));
        let phase = burst.phase();
        let mut commands = self.timed_commands(phase);
        self.record_burst(&mut commands, &burst, draws);
        match burst.rows {
            [row] if burst.fed() > 0 => {
                (self.fed_slot, self.fed_rows) = (row.slot, 1);
                self.fed_position = row.position + burst.fed() - 1;
            }
            [_] => {}
            _ => self.fed_rows = 0,
        }
        let n_words = burst.steps * n_rows;
        let first_word = ring_slot.first_word() as u64;
        commands.copy(self.sequence.ring.words(), first_word * 4, ring_slot.staging(), (n_words * 4) as u64);
        let (submission, own_times) = commands.submit_timed()?;
        let reading = ring_slot.read(&self.gpu, n_words, submission)?;
        let mut times = self.timers.take_pending();
        times.extend(own_times);
        Ok(InFlight { reading, _slot: ring_slot, n_rows, times, ledger: self.timers.ledger().cloned(), phase })
    }

    /// Writes what the device does not know yet of a row.
    pub(super) fn write_row(&mut self, row: &Row<'_>) {
        let slot = row.slot;
        let draws_anew = self.write_rules(slot, row.sampling);
        let stops_anew = self.slots[slot].stops != row.stop_ids;
        if stops_anew {
            let at = (slot * MAX_STOP_IDS * 4) as u64;
            write(&self.gpu, &self.sequence.stops, at, bytemuck::cast_slice(row.stop_ids));
            self.slots[slot].stops = row.stop_ids.to_vec();
        }
        if let First::Token(id) = row.first {
            write(&self.gpu, &self.sequence.tokens, (slot * 4) as u64, &id.to_le_bytes());
            self.write_history(slot, &[id], row.position);
        }
        if let Some(mask) = row.mask {
            write(&self.gpu, &self.sequence.masks, (slot * mask.len() * 4) as u64, bytemuck::cast_slice(mask));
        }
        let state = State {
            fed: u32::from(row.first != First::FromLogits),
            left: u32::try_from(row.left).unwrap_or(u32::MAX),
            n_ctx: self.sequence.capacity.n_ctx as u32,
            limit: self.limit_bits(),
            n_stops: row.stop_ids.len() as u32,
            ..State::at(row.position)
        };
        let state = state.drawing(row.sampling);
        if row.first != First::FromState {
            self.write_state(slot, state);
        } else if draws_anew || stops_anew {
            // The rest is on the device.
            let settings = &bytemuck::bytes_of(&state)[State::SETTINGS_AT as usize..];
            write(&self.gpu, &self.sequence.state, state_at(slot) + State::SETTINGS_AT, settings);
        }
    }

    fn record_burst(&self, commands: &mut Commands, burst: &Burst<'_>, draws: Draws) {
        let mut positions: Vec<usize> = burst.rows.iter().map(|row| row.position).collect();
        let instance = self.decode.instance(positions.len());
        for step in 0..burst.steps {
            if step > 0 || !burst.only_draws_first() {
                commands.record(&instance.body, &positions);
                commands.record(&instance.head, &positions);
                positions.iter_mut().for_each(|position| *position += 1);
            }
            commands.record(self.decode.sampler.steps(draws), &positions);
        }
    }
}
