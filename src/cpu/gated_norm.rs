//! `rms_norm(x) * silu(gate)`, zero below 2^-100.

use super::rms_norm::rms_norm;
use crate::numerics::{exact_silu, flush_small};

/// Normalises one head `x [size]` with the scales `weight [size]` and multiplies it by the SiLU of `gate [size]` into `out [size]`.
pub fn gated_norm(x: &[f32], gate: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    rms_norm(x, weight, eps, out);
    for (out, gate) in out.iter_mut().zip(gate) {
        *out = flush_small(exact_silu(*gate) * *out);
    }
}
