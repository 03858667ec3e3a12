//! The experts a row picks, and their weights (docs/numerics.md, "Experts").

use std::cmp::Reverse;

use crate::numerics::{exact_exp, exact_recip, flush_small, is_finite_bits};
use crate::sample::order_key;

/// 2^64: larger magnitudes count as this.
const LARGEST: f32 = f32::from_bits(0x5f80_0000);
/// What a row's weights are where a logit is not finite, so that it stays visible.
const NOT_FINITE: f32 = f32::from_bits(0x7fc0_0000);

/// Writes the experts of the largest `logits [n_experts]` to `out [n_used, 2]`: the id's bits and the weight, the largest first.
pub fn route(logits: &[f32], out: &mut [f32]) {
    let mut ids: Vec<u32> = (0..logits.len() as u32).collect();
    let picks = out.as_chunks_mut::<2>().0;
    if !logits.iter().all(|logit| is_finite_bits(*logit)) {
        for (pick, id) in picks.iter_mut().zip(ids) {
            *pick = [f32::from_bits(id), NOT_FINITE];
        }
        return;
    }
    let logit = |id: u32| logits[id as usize].clamp(-LARGEST, LARGEST);
    ids.sort_unstable_by_key(|id| (Reverse(order_key(logit(*id))), *id));
    let largest = logit(ids[0]);
    for (pick, id) in picks.iter_mut().zip(ids) {
        *pick = [f32::from_bits(id), exact_exp(logit(id) - largest)];
    }
    let sum = picks.iter().fold(0.0, |sum, pick| sum + pick[1]);
    let scale = exact_recip(sum);
    for pick in picks {
        pick[1] = flush_small(pick[1] * scale);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::micro::rng::Rng;

    fn routed(logits: &[f32], n_used: usize) -> (Vec<u32>, Vec<f32>) {
        let mut out = vec![0.0; 2 * n_used];
        route(logits, &mut out);
        out.as_chunks::<2>().0.iter().map(|[id, weight]| (id.to_bits(), *weight)).unzip()
    }

    /// Softmax over all experts, the likeliest, divided by their sum: in f64.
    fn reference(logits: &[f32], n_used: usize) -> (Vec<u32>, Vec<f64>) {
        let total: f64 = logits.iter().map(|l| f64::from(*l).exp()).sum();
        let mut all: Vec<(u32, f64)> = (0..).zip(logits.iter().map(|l| f64::from(*l).exp() / total)).collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        all.truncate(n_used);
        let sum: f64 = all.iter().map(|(_, p)| p).sum();
        all.into_iter().map(|(id, p)| (id, p / sum)).unzip()
    }

    #[test]
    fn weights_are_those_of_a_softmax_over_all_made_to_add_up_to_one() {
        for (n_experts, n_used) in [(1, 1), (8, 3), (8, 8), (128, 8), (512, 100)] {
            let mut rng = Rng::new(n_experts as u64, "logits");
            let logits: Vec<f32> = (0..n_experts).map(|_| rng.uniform(-6.0, 6.0)).collect();
            let (found, wanted) = (routed(&logits, n_used), reference(&logits, n_used));
            assert_eq!(found.0, wanted.0, "{n_used} of {n_experts}");
            for (found, wanted) in found.1.iter().zip(&wanted.1) {
                assert!((f64::from(*found) / wanted - 1.0).abs() < 1e-6, "{found}, wanted {wanted}");
            }
            let sum: f32 = found.1.iter().sum();
            assert!((sum - 1.0).abs() < 1e-5, "{n_used} of {n_experts}: weights add up to {sum}");
        }
    }

    #[test]
    fn the_lowest_id_wins_ties() {
        assert_eq!(routed(&[1.0; 6], 3), (vec![0, 1, 2], vec![routed(&[1.0; 3], 3).1[0]; 3]));
        assert_eq!(routed(&[1.0, 2.0, 1.0, 2.0, 1.0], 3).0, [1, 3, 0]);
        assert_eq!(routed(&[-1.0, -0.0, 0.0, -0.0], 2).0, [1, 2], "the zeros are equal");
    }

    #[test]
    fn far_experts_weigh_nothing() {
        assert_eq!(routed(&[0.0, 80.0, -3e38], 3), (vec![1, 0, 2], vec![1.0, 0.0, 0.0]));
        assert_eq!(routed(&[2e38, -3e38, 3e38], 2), (vec![0, 2], vec![0.5, 0.5]), "both count as 2^64");
    }

    #[test]
    fn logits_that_are_not_finite_stay_visible() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let (ids, weights) = routed(&[1.0, 2.0, bad, 3.0], 2);
            assert_eq!(ids, [0, 1]);
            assert!(weights.iter().all(|w| w.to_bits() == 0x7fc0_0000), "{bad}");
        }
    }
}
