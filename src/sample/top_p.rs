//! Top-p: the smallest set of likeliest ids whose probability mass reaches p.

use super::candidates::Candidate;
use super::mass::{fixed, keep_share};

/// Keeps the shortest beginning of sorted `candidates` that has the mass `p` of all.
pub(super) fn keep(candidates: &mut Vec<Candidate>, p: f32) {
    if let (1.., Some(top)) = (fixed(p), candidates.first().map(|c| c.value)) {
        keep_share(candidates, fixed(p), top);
    }
}
