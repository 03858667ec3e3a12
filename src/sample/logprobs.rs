//! Log-probabilities of the model's own distribution: of the logits as they are, before bans, biases, penalties and temperature.
//! Only f64 arithmetic in one order and the pure-Rust `libm`, so the bits are the same on every platform.

use super::adjust::usable;
use super::candidates::{self, Candidate};

/// Most of the likeliest ids that are listed.
pub const MAX_TOP_LOGPROBS: usize = 20;

/// Natural logarithms of probabilities.
#[derive(Debug, Clone, PartialEq)]
pub struct Logprobs {
    /// Of the chosen id; -infinity where its probability is 0.
    pub chosen: f32,
    /// The likeliest ids, the lower id first among equals; none with a probability of 0, so there may be fewer than asked for.
    pub top: Vec<(u32, f32)>,
}

/// Log-probabilities of `chosen` and of the `n` likeliest ids. Logits that are NaN or -infinity, and ids past the end, have the
/// probability 0; other magnitudes above 2^64 count as 2^64, as they do in a draw.
pub fn top_logprobs(logits: &[f32], chosen: u32, n: usize) -> Logprobs {
    let values: Vec<_> = logits.iter().map(|logit| usable(*logit)).collect();
    let largest = f64::from(values.iter().flatten().copied().fold(f32::NEG_INFINITY, f32::max));
    let total: f64 = values.iter().flatten().map(|value| libm::exp(f64::from(*value) - largest)).sum();
    let log_total = libm::log(total);
    let logprob = |value: f32| ((f64::from(value) - largest) - log_total) as f32;
    let top = likeliest(&values, n).into_iter().map(|c| (c.id, logprob(c.value)));
    let chosen = values.get(chosen as usize).copied().flatten();
    Logprobs { chosen: chosen.map_or(f32::NEG_INFINITY, logprob), top: top.collect() }
}

/// The first `n` in order.
fn likeliest(values: &[Option<f32>], n: usize) -> Vec<Candidate> {
    let mut all = candidates::of(values);
    if n < all.len() {
        all.select_nth_unstable_by(n, candidates::order);
        all.truncate(n);
    }
    candidates::sort(&mut all);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::micro::rng::Rng;

    fn row(seed: u64, n: usize) -> Vec<f32> {
        let mut rng = Rng::new(seed, "logits");
        (0..n).map(|_| (rng.uniform(-20.0, 20.0) * 4.0).round() / 4.0).collect()
    }

    #[test]
    fn they_are_those_of_the_softmax() {
        for (seed, n) in [(1, 1), (2, 5), (3, 300), (4, 300)] {
            let logits = row(seed, n);
            // 1 / sum of exp(other - own) is a probability, whatever the largest one is
            let probability = |id: usize| {
                let own = f64::from(logits[id]);
                logits.iter().map(|l| (f64::from(*l) - own).exp()).sum::<f64>().recip()
            };
            let mut ids: Vec<usize> = (0..n).collect();
            ids.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
            for (chosen, asked) in [(0, 0), (n - 1, 3), (n / 2, MAX_TOP_LOGPROBS)] {
                let found = top_logprobs(&logits, chosen as u32, asked);
                let near = |a: f32, id: usize| (f64::from(a) - probability(id).ln()).abs() < 2e-6;
                assert!(near(found.chosen, chosen), "{found:?}");
                let listed: Vec<_> = found.top.iter().map(|(id, _)| *id as usize).collect();
                assert_eq!(listed, ids[..asked.min(n)]);
                assert!(found.top.iter().all(|(id, logprob)| near(*logprob, *id as usize)), "{found:?}");
            }
        }
    }

    #[test]
    fn a_shift_of_all_logits_changes_no_bit() {
        let logits = row(9, 500);
        let moved: Vec<_> = logits.iter().map(|l| l + 64.0).collect();
        assert_eq!(top_logprobs(&logits, 7, 20), top_logprobs(&moved, 7, 20));
    }

    #[test]
    fn extreme_rows() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        let half = 0.5f32.ln();
        /// Logits, the chosen id, its log-probability, those listed.
        type Case<'a> = (&'a [f32], u32, f32, &'a [(u32, f32)]);
        let cases: [Case<'_>; 7] = [
            (&[], 0, -inf, &[]),
            (&[-inf, nan], 0, -inf, &[]),
            (&[nan, -inf, 3.0], 2, 0.0, &[(2, 0.0)]),
            (&[nan, -inf, 3.0], 1, -inf, &[(2, 0.0)]),
            (&[inf, f32::MAX, -inf, nan], 1, half, &[(0, half), (1, half)]),
            (&[f32::MIN, 1e-40, 1e-40], 2, half, &[(1, half), (2, half), (0, -(2f32.powi(64)))]),
            (&[0.0, -0.0], 5, -inf, &[(0, half), (1, half)]),
        ];
        for (logits, chosen, wanted, top) in cases {
            assert_eq!(top_logprobs(logits, chosen, 20), Logprobs { chosen: wanted, top: top.to_vec() }, "{logits:?}");
        }
        let huge = top_logprobs(&vec![2.5; 262_144], 262_143, 2);
        assert_eq!(
            huge,
            Logprobs { chosen: -(18.0 * 2f64.ln()) as f32, top: vec![(0, huge.chosen), (1, huge.chosen)] }
        );
    }
}
