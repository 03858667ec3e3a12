//! Typical-p (locally typical sampling): the smallest set of ids, those of the most expectable surprise first, whose probability mass
//! reaches p.
//!
//! The surprise of an id is -ln of its probability, and the expected surprise is the entropy. Both contain the logarithm of the
//! masses' total, which cancels where they are compared, so distances from the largest value stand for surprises.

use super::candidates::Candidate;
use super::mass::{fixed, keep_share, mass};

/// Steps of a nat.
const STEPS: f32 = 2048.0;
/// All ids further below the largest value, in nats, count as equally surprising; none of them has a mass.
const FURTHEST: f32 = 31.0;

/// How far `value` lies below `top`, in steps: below 2^16.
pub(super) fn surprise(value: f32, top: f32) -> u64 {
    ((top - value).min(FURTHEST) * STEPS) as u64
}

/// The mean surprise by mass, rounded down. There is a candidate of the value `top`, so there is mass.
pub(super) fn expected(candidates: &[Candidate], top: f32) -> u64 {
    let (mut total, mut weighted) = (0, 0);
    for c in candidates {
        let mass = mass(c.value, top);
        total += mass;
        weighted += mass * surprise(c.value, top);
    }
    weighted / total
}

/// Keeps the most typical of sorted `candidates` that have the mass `p` of all, and leaves them in that order.
pub(super) fn keep(candidates: &mut Vec<Candidate>, p: f32) {
    if let (1.., Some(top)) = (fixed(p), candidates.first().map(|c| c.value)) {
        let expected = expected(candidates, top);
        candidates.sort_unstable_by_key(|c| (surprise(c.value, top).abs_diff(expected), c.id));
        keep_share(candidates, fixed(p), top);
    }
}
