//! Top-k: exactly the k largest values; of equal ones at the border the lowest ids.

use super::candidates::{Candidate, order};

/// Keeps the first `k` by `order`; 0 keeps all.
pub(super) fn keep(candidates: &mut Vec<Candidate>, k: u32) {
    let k = k as usize;
    if k > 0 && k < candidates.len() {
        candidates.select_nth_unstable_by(k - 1, order);
        candidates.truncate(k);
    }
}
