//! Min-p: ids at least `min_p` times as likely as the likeliest.

use super::candidates::Candidate;
use super::order_key;
use crate::numerics::flush_small;

/// ln(min_p), rounded to f32: what a value may be below the largest one. `None` where that keeps all.
pub(crate) fn offset(min_p: f32) -> Option<f32> {
    (min_p > 0.0).then(|| libm::log(f64::from(min_p)) as f32)
}

/// Keeps the likely ones of sorted `candidates`.
pub(super) fn keep(candidates: &mut Vec<Candidate>, min_p: f32) {
    if let (Some(offset), Some(top)) = (offset(min_p), candidates.first()) {
        let least = order_key(flush_small(top.value + offset));
        candidates.retain(|c| order_key(c.value) >= least);
    }
}
