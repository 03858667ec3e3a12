//! `out += sigmoid(gate) * y`, one gate a row; products below 2^-100 are zero.

use crate::numerics::{exact_sigmoid, flush_small};

/// Writes the row's `y` times the sigmoid of `gate` to `out`, which the caller adds.
pub fn gated_add(y: &[f32], gate: f32, out: &mut [f32]) {
    let factor = exact_sigmoid(gate);
    for (out, y) in out.iter_mut().zip(y) {
        *out = flush_small(factor * y);
    }
}
