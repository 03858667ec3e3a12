//! RMS norm: `y = x * rsqrt(mean(x^2) + eps) * w`.

use crate::numerics::{exact_rsqrt, guard, tree256};

/// Partial sums of a norm.
pub const LANES: usize = 256;

/// Normalises one row `x [d]` into `out [d]` with the scales `weight [d]`.
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let mut lanes = [0.0f32; LANES];
    for chunk in x.chunks(LANES) {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane += guard(x * x);
        }
    }
    let mean = guard(tree256(&lanes) * (1.0 / x.len() as f32));
    let r = exact_rsqrt(mean + eps);
    for ((out, x), w) in out.iter_mut().zip(x).zip(weight) {
        *out = (x * r) * w;
    }
}
