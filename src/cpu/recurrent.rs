//! The recurrent state of one gated delta net layer and one sequence.

use crate::plan::DeltaHeads;

/// What a layer keeps of all positions before the next one.
#[derive(Debug, Clone, PartialEq)]
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
