//! The recurrent states of one gated delta net layer on the device: those of the slots, and snapshots of them.

use super::buffers::Allocator;
use super::driver::{Buffer, Usage};
use super::recorder::Commands;
use crate::engine::backend::Capacity;
use crate::plan::DeltaHeads;

/// Buffers of one layer. What an entry holds is that of `cpu::recurrent`.
pub(crate) struct Recurrent {
    /// By slot: `[n_value_heads, size, size]`, f32.
    pub(crate) states: Buffer,
    /// By slot: `[kernel - 1, n_channels]`, f32.
    pub(crate) ring: Buffer,
    /// The same by snapshot.
    saved_states: Buffer,
    saved_ring: Buffer,
    heads: DeltaHeads,
}

impl Recurrent {
    pub(crate) fn new(allocator: &mut Allocator, heads: DeltaHeads, capacity: Capacity) -> Self {
        let mut entries = |what, n: usize, len: usize| allocator.buffer(what, (n * len * 4) as u64, Usage::Storage);
        Recurrent {
            states: entries("recurrent states", capacity.slots, heads.states_len()),
            ring: entries("convolution ring", capacity.slots, heads.ring_len()),
            saved_states: entries("saved recurrent states", capacity.snapshots, heads.states_len()),
            saved_ring: entries("saved convolution ring", capacity.snapshots, heads.ring_len()),
            heads,
        }
    }

    /// Copies a slot's state to a snapshot.
    pub(crate) fn save(&self, commands: &mut Commands, slot: usize, snapshot: usize) {
        let [states, ring] = self.entry_bytes();
        let (slot, snapshot) = (slot as u64, snapshot as u64);
        commands.copy_to(&self.states, slot * states, &self.saved_states, snapshot * states, states);
        commands.copy_to(&self.ring, slot * ring, &self.saved_ring, snapshot * ring, ring);
    }

    /// Copies a snapshot to a slot's state.
    pub(crate) fn load(&self, commands: &mut Commands, slot: usize, snapshot: usize) {
        let [states, ring] = self.entry_bytes();
        let (slot, snapshot) = (slot as u64, snapshot as u64);
        commands.copy_to(&self.saved_states, snapshot * states, &self.states, slot * states, states);
        commands.copy_to(&self.saved_ring, snapshot * ring, &self.ring, slot * ring, ring);
    }

    /// The buffers of snapshots and the bytes of an entry in each, in the order of a snapshot's bytes.
    pub(crate) fn saved(&self) -> [(&Buffer, u64); 2] {
        let [states, ring] = self.entry_bytes();
        [(&self.saved_states, states), (&self.saved_ring, ring)]
    }

    /// The buffers of slots and the bytes of an entry in each.
    pub(crate) fn current(&self) -> [(&Buffer, u64); 2] {
        let [states, ring] = self.entry_bytes();
        [(&self.states, states), (&self.ring, ring)]
    }

    fn entry_bytes(&self) -> [u64; 2] {
        [self.heads.states_len() as u64 * 4, self.heads.ring_len() as u64 * 4]
    }
}
