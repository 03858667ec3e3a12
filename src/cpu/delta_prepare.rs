//! What the gated delta rule reads of a row: convolution and SiLU, queries and keys of unit length, betas and decays.

use super::recurrent::Recurrent;
use crate::numerics::{exact_exp, exact_rsqrt, exact_sigmoid, exact_silu, exact_softplus, guard, tree256};
use crate::plan::DeltaHeads;

/// Partial sums of a head's length.
const LANES: usize = 256;
/// Values of queries and keys, and decays, below 2^-24 are zero: their products with a state's values, which are zero below 2^-100, are
/// never denormal.
const SMALLEST: f32 = f32::from_bits((127 - 24) << 23);

/// What does not depend on the row.
#[derive(Debug, Clone, Copy)]
pub struct DeltaPrepare<'a> {
    /// Geometry.
    pub heads: DeltaHeads,
    /// Kernel of the convolution, `[n_channels, kernel]`, the latest input's weight last.
    pub conv: &'a [f32],
    /// Added to alpha, `[n_value_heads]`.
    pub dt_bias: &'a [f32],
    /// The decay's rate, `[n_value_heads]`.
    pub rate: &'a [f32],
    /// Added to a head's sum of squares.
    pub eps: f32,
}

impl DeltaPrepare<'_> {
    /// Prepares row `r` of the sequence's rows `mixed [rows, mixed width]`, the first of which is at `position`, into
    /// `out [prepared width]`. `before` is the state before these rows.
    pub fn row(&self, mixed: &[f32], r: usize, position: usize, before: &Recurrent, out: &mut [f32]) {
        let heads = self.heads;
        let (channels, gates) = out.split_at_mut(heads.n_channels());
        for (channel, out) in channels.iter_mut().enumerate() {
            *out = exact_silu(self.convolve(mixed, r, position, before, channel));
        }
        let (queries, rest) = channels.split_at_mut(heads.n_key_heads * heads.size);
        for query in queries.chunks_exact_mut(heads.size) {
            unit_length(query, self.eps, heads.query_scale());
        }
        for key in rest[..heads.n_key_heads * heads.size].chunks_exact_mut(heads.size) {
            unit_length(key, self.eps, 1.0);
        }
        let row = &mixed[r * heads.mixed_width()..][..heads.mixed_width()];
        let raw = &row[heads.n_channels() + heads.values_width()..];
        let (betas, decays) = gates.split_at_mut(heads.n_value_heads);
        for (j, (beta, decay)) in betas.iter_mut().zip(decays).enumerate() {
            let [beta_at, alpha_at] = heads.gates_at(j);
            *beta = exact_sigmoid(raw[beta_at]);
            let time_step = exact_softplus(raw[alpha_at] + self.dt_bias[j]);
            *decay = flush(exact_exp(guard(self.rate[j] * time_step)));
        }
    }

    /// One channel's sum over its last `kernel` inputs, the earliest first; there are none before position 0.
    fn convolve(&self, mixed: &[f32], r: usize, position: usize, before: &Recurrent, channel: usize) -> f32 {
        let DeltaHeads { kernel, .. } = self.heads;
        let (n_channels, mixed_width) = (self.heads.n_channels(), self.heads.mixed_width());
        let mut sum = 0.0;
        for (i, weight) in self.conv[channel * kernel..][..kernel].iter().enumerate() {
            let back = kernel - 1 - i;
            let input = if back <= r {
                mixed[(r - back) * mixed_width + channel]
            } else if back <= position + r {
                before.ring[(position + r - back) % (kernel - 1) * n_channels + channel]
            } else {
                0.0
            };
            sum += guard(weight * input);
        }
        sum
    }
}

/// Divides a head by the root of its sum of squares, and multiplies it by `scale`.
fn unit_length(head: &mut [f32], eps: f32, scale: f32) {
    let mut lanes = [0.0f32; LANES];
    for (lane, x) in lanes.iter_mut().zip(head.iter()) {
        *lane = guard(x * x);
    }
    let r = exact_rsqrt(tree256(&lanes) + eps);
    for x in head {
        *x = flush(guard(*x * r) * scale);
    }
}

fn flush(x: f32) -> f32 {
    if x.abs() < SMALLEST { 0.0 } else { x }
}
