//! The recurrent states of gated delta net layers: those of the slots, and snapshots of them.

use crate::plan::DeltaHeads;

/// What a layer keeps of one sequence's positions before the next one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recurrent {
    /// The states of the value heads, `[n_value_heads, size, size]`; a column, which belongs to one value, is contiguous.
    pub states: Vec<f32>,
    /// The convolution's last inputs, `[kernel - 1, n_channels]`: position `p` is row `p mod (kernel - 1)`.
    pub ring: Vec<f32>,
}

impl Recurrent {
    /// The state before position 0.
    pub fn new(heads: DeltaHeads) -> Self {
        Recurrent { states: vec![0.0; heads.states_len()], ring: vec![0.0; heads.ring_len()] }
    }

    /// Gets ready for the rule over rows that were prepared, `mixed [rows, mixed width]`, the first of which is at `position`: keeps their
    /// inputs. At position 0 the states are zero; the ring needs nothing, since no input before that position is read.
    pub fn begin(&mut self, mixed: &[f32], heads: DeltaHeads, position: usize) {
        if position == 0 {
            self.states.fill(0.0);
        }
        let (kept, n_channels) = (heads.kernel - 1, heads.n_channels());
        let n_rows = mixed.len() / heads.mixed_width();
        for r in n_rows.saturating_sub(kept)..n_rows {
            let inputs = &mixed[r * heads.mixed_width()..][..n_channels];
            self.ring[(position + r) % kept * n_channels..][..n_channels].copy_from_slice(inputs);
        }
    }
}

/// The states of one layer, allocated as they are first used.
#[derive(Debug, Clone)]
pub struct LayerStates {
    heads: DeltaHeads,
    slots: Vec<Recurrent>,
    snapshots: Vec<Recurrent>,
}

impl LayerStates {
    /// States of `slots` sequences and room for `snapshots`.
    pub fn new(heads: DeltaHeads, slots: usize, snapshots: usize) -> Self {
        let empty = |n| vec![Recurrent::default(); n];
        LayerStates { heads, slots: empty(slots), snapshots: empty(snapshots) }
    }

    /// Makes sure that a slot's state is there.
    pub fn reserve(&mut self, slot: usize) {
        reserved(&mut self.slots[slot], self.heads);
    }

    /// A slot's state, which was reserved.
    pub fn slot(&self, slot: usize) -> &Recurrent {
        &self.slots[slot]
    }

    /// A slot's state.
    pub fn slot_mut(&mut self, slot: usize) -> &mut Recurrent {
        reserved(&mut self.slots[slot], self.heads)
    }

    /// A snapshot; the state before position 0 where none was saved.
    pub fn snapshot_mut(&mut self, snapshot: usize) -> &mut Recurrent {
        reserved(&mut self.snapshots[snapshot], self.heads)
    }

    /// Copies a slot's state to a snapshot.
    pub fn save(&mut self, slot: usize, snapshot: usize) {
        let (heads, from) = (self.heads, &mut self.slots[slot]);
        self.snapshots[snapshot].clone_from(reserved(from, heads));
    }

    /// Copies a snapshot to a slot's state.
    pub fn load(&mut self, slot: usize, snapshot: usize) {
        let (heads, from) = (self.heads, &mut self.snapshots[snapshot]);
        self.slots[slot].clone_from(reserved(from, heads));
    }
}

fn reserved(state: &mut Recurrent, heads: DeltaHeads) -> &mut Recurrent {
    if state.states.is_empty() {
        *state = Recurrent::new(heads);
    }
    state
}
