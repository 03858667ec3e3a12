//! Ids that may be drawn, and their order.

use std::cmp::Ordering;

use super::order_key;

/// An id and its value: logit, adjusted, over the temperature.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Candidate {
    pub(super) id: u32,
    pub(super) value: f32,
}

/// The likeliest first, the lower id first among equals.
pub(super) fn order(a: &Candidate, b: &Candidate) -> Ordering {
    order_key(b.value).cmp(&order_key(a.value)).then(a.id.cmp(&b.id))
}

/// The ids that have a value.
pub(super) fn of(values: &[Option<f32>]) -> Vec<Candidate> {
    let ids = (0..).zip(values);
    ids.filter_map(|(id, value)| Some(Candidate { id, value: (*value)? })).collect()
}

/// Sorts by `order`.
pub(super) fn sort(candidates: &mut [Candidate]) {
    candidates.sort_unstable_by(order);
}
