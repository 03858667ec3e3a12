//! What the filters keep, against references that sort whole rows: the rules of docs/numerics.md in u128 on the contract's masses, and
//! the textbook's definitions in f64.

use super::*;
use crate::numerics::{exact_exp2, flush_small};

/// A row and settings that filter it.
struct Case {
    row: Vec<f32>,
    sampling: Sampling,
}

fn one_of<T: Copy>(rng: &mut Rng, values: &[T]) -> T {
    values[rng.u64() as usize % values.len()]
}

/// Values in steps of `1 / steps_a_nat`, so that there are many ties.
fn case(seed: u64, steps_a_nat: &[f32]) -> Case {
    let mut rng = Rng::new(seed, "filters");
    let n = one_of(&mut rng, &[1, 2, 5, 64, 200, 1000]);
    let (width, steps) = (one_of(&mut rng, &[0.1, 2.0, 6.0, 25.0]), one_of(&mut rng, steps_a_nat));
    let row = (0..n).map(|_| (rng.uniform(-width, width) * steps).round() / steps).collect();
    // A top-k of 1 is greedy.
    let top_k = one_of(&mut rng, &[2, 7, n / 2, n, n + 1, u32::MAX]).max(2);
    let sampling = Sampling {
        top_k: if rng.u64().is_multiple_of(2) { 0 } else { top_k },
        top_p: one_of(&mut rng, &[1.0, 1.0, 0.99, 0.9, 0.5, 0.1, 1e-6]),
        min_p: one_of(&mut rng, &[0.0, 0.0, 0.001, 0.0499, 0.3, 1.0]),
        typical_p: one_of(&mut rng, &[1.0, 1.0, 0.99, 0.9, 0.5, 0.2, 1e-6]),
        ..Sampling::new(1.0, seed)
    };
    Case { row, sampling }
}

fn found(case: &Case) -> Vec<u32> {
    let mut found = ids(&kept(&case.row, &case.sampling, &[], None));
    found.sort_unstable();
    found
}

/// Ids by value, the lower first among equals.
fn by_value(row: &[f32]) -> Vec<usize> {
    let mut ids: Vec<_> = (0..row.len()).collect();
    ids.sort_by(|a, b| row[*b].partial_cmp(&row[*a]).unwrap().then(a.cmp(b)));
    ids
}

/// The shortest beginning of `ids` whose masses have the share `p` of theirs, in parts of 65536.
fn shortest(ids: &[usize], p: f32, mass: &impl Fn(usize) -> u128) -> Vec<usize> {
    let share = (f64::from(p) * 65536.0).round().max(1.0) as u128;
    if share >= 65536 {
        return ids.to_vec();
    }
    let total: u128 = ids.iter().map(|id| mass(*id)).sum();
    let (mut kept, mut sum) = (Vec::new(), 0);
    for id in ids {
        if sum * 65536 < total * share {
            kept.push(*id);
            sum += mass(*id);
        }
    }
    kept
}

/// By the rules of the contract.
fn documented(case: &Case) -> Vec<u32> {
    let (row, s) = (&case.row, &case.sampling);
    let mut ids = by_value(row);
    let top = row[ids[0]];
    let mass = |id: usize| {
        (f64::from(exact_exp2((row[id] - top) * std::f32::consts::LOG2_E)) * f64::from(1 << 26)).floor() as u128
    };
    let surprise = |id: usize| (f64::from((top - row[id]).min(31.0)) * 2048.0).floor() as u128;
    if s.top_k > 0 {
        ids.truncate(s.top_k as usize);
    }
    ids = shortest(&ids, s.top_p, &mass);
    if s.min_p > 0.0 {
        let least = flush_small(top + libm::log(f64::from(s.min_p)) as f32);
        ids.retain(|id| row[*id] >= least);
    }
    if s.typical_p < 1.0 {
        let total: u128 = ids.iter().map(|id| mass(*id)).sum();
        let mean = ids.iter().map(|id| mass(*id) * surprise(*id)).sum::<u128>() / total;
        ids.sort_by_key(|id| (surprise(*id).abs_diff(mean), *id));
        ids = shortest(&ids, s.typical_p, &mass);
    }
    ids.sort_unstable();
    ids.into_iter().map(|id| id as u32).collect()
}

#[test]
fn they_keep_what_is_documented() {
    for seed in 0..6000 {
        // 3000 steps: several values of one surprise
        let case = case(seed, &[1.0, 8.0, 300.0, 3000.0, 1e6]);
        assert_eq!(found(&case), documented(&case), "seed {seed}: {} values, {:?}", case.row.len(), case.sampling);
    }
}

/// By the textbook, with what can make it differ from the contract: `None` where a border is that close.
struct Textbook<'a> {
    row: &'a [f32],
    /// Error of a sum of masses, relative to the total.
    slack: f64,
}

impl Textbook<'_> {
    /// Of `ids`, by id; 0 of others.
    fn probabilities(&self, ids: &[usize]) -> Vec<f64> {
        let largest = ids.iter().map(|id| f64::from(self.row[*id])).fold(f64::NEG_INFINITY, f64::max);
        let mut all = vec![0.0; self.row.len()];
        ids.iter().for_each(|id| all[*id] = (f64::from(self.row[*id]) - largest).exp());
        let total: f64 = all.iter().sum();
        all.into_iter().map(|p| p / total).collect()
    }

    /// The shortest beginning of `ids` with the probability `p`.
    fn shortest(&self, ids: &[usize], p: f32) -> Option<Vec<usize>> {
        let (probabilities, p) = (self.probabilities(ids), f64::from(p));
        let mut sum = 0.0;
        for (n, id) in ids.iter().enumerate() {
            // Nothing is no beginning that could be enough.
            let before = if n == 0 { f64::NEG_INFINITY } else { sum };
            sum += probabilities[*id];
            if sum >= p || n + 1 == ids.len() {
                let near = [before, sum].into_iter().any(|sum| (sum - p).abs() < self.slack);
                return (!near).then(|| ids[..=n].to_vec());
            }
        }
        None
    }

    fn kept(&self, s: &Sampling) -> Option<Vec<u32>> {
        let mut ids = by_value(self.row);
        if s.top_k > 0 {
            ids.truncate(s.top_k as usize);
        }
        if s.top_p < 1.0 {
            ids = self.shortest(&ids, s.top_p)?;
        }
        let (probabilities, min_p) = (self.probabilities(&ids), f64::from(s.min_p));
        let least = min_p * probabilities[ids[0]];
        if ids.iter().any(|id| min_p < 1.0 && (probabilities[*id] / least - 1.0).abs() < 1e-6) {
            return None;
        }
        ids.retain(|id| probabilities[*id] >= least);
        if s.typical_p < 1.0 {
            ids = self.typical(&ids, s.typical_p)?;
        }
        ids.sort_unstable();
        Some(ids.into_iter().map(|id| id as u32).collect())
    }

    fn typical(&self, ids: &[usize], p: f32) -> Option<Vec<usize>> {
        let probabilities = self.probabilities(ids);
        let surprise = |id: usize| -probabilities[id].ln();
        let entropy: f64 = ids.iter().map(|id| surprise(*id) * probabilities[*id]).sum();
        let mut sorted: Vec<_> = ids.iter().map(|id| ((surprise(*id) - entropy).abs(), *id)).collect();
        sorted.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        // Distances are whole steps, and the entropy is off by a step at most: whatever is nearer than two may change places.
        let may_swap =
            |pair: &[(f64, usize)]| self.row[pair[0].1] != self.row[pair[1].1] && pair[1].0 - pair[0].0 < 2.0 / 2048.0;
        let order: Vec<_> = sorted.iter().map(|(_, id)| *id).collect();
        if sorted.windows(2).any(may_swap) { None } else { self.shortest(&order, p) }
    }
}

#[test]
fn they_keep_what_the_textbook_keeps() {
    let (mut compared, n) = (0, 1500);
    for seed in 0..n {
        let case = case(seed, &[1.0, 2.0, 8.0]);
        let slack = 2e-5 + case.row.len() as f64 / f64::from(1 << 26);
        if let Some(wanted) = (Textbook { row: &case.row, slack }).kept(&case.sampling) {
            compared += 1;
            assert_eq!(found(&case), wanted, "seed {seed}: {} values, {:?}", case.row.len(), case.sampling);
        }
    }
    assert!(compared > n * 3 / 4, "{compared} of {n}");
}
