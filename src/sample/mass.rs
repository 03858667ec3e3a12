//! Probability masses as integers, so that no order of adding them matters.

use std::f32::consts::LOG2_E;

use super::candidates::Candidate;
use crate::numerics::{exact_exp2, guard};

/// The mass of the largest value.
const ONE: f32 = 67_108_864.0;

/// 65536 times p as an integer, 0 where that keeps all.
pub(crate) fn fixed(p: f32) -> u32 {
    let fixed = (f64::from(p) * 65536.0).round() as u32;
    if fixed >= 65536 { 0 } else { fixed.max(1) }
}

/// The mass of `value` where the largest value is `top`, in units of 2^-26.
pub(super) fn mass(value: f32, top: f32) -> u64 {
    (exact_exp2(guard((value - top) * LOG2_E)) * ONE) as u64
}

/// Keeps the shortest beginning of `candidates` that has the share `fixed / 65536` of their mass; `top` is the largest value.
pub(super) fn keep_share(candidates: &mut Vec<Candidate>, fixed: u32, top: f32) {
    let total: u64 = candidates.iter().map(|c| mass(c.value, top)).sum();
    let target = (total * u64::from(fixed)).div_ceil(65536);
    let mut reached = 0;
    let missing = candidates.iter().take_while(|c| {
        let short = reached < target;
        reached += mass(c.value, top);
        short
    });
    let n = missing.count();
    candidates.truncate(n);
}
