//! The rules apart from their distribution: order, penalties, ranges.

mod draws;
mod filters;

use super::candidates::Candidate;
use super::*;
use crate::error::Error;
use crate::micro::rng::Rng;

/// Values in steps of 1/8, so that there are ties.
fn random_row(seed: u64, n: usize) -> Vec<f32> {
    let mut rng = Rng::new(seed, "row");
    (0..n).map(|_| (rng.uniform(-6.0, 6.0) * 8.0).round() / 8.0).collect()
}

fn sorted(values: &[f32]) -> Vec<Candidate> {
    let values: Vec<_> = values.iter().map(|v| Some(*v)).collect();
    let mut all = candidates::of(&values);
    candidates::sort(&mut all);
    all
}

fn ids(candidates: &[Candidate]) -> Vec<u32> {
    candidates.iter().map(|c| c.id).collect()
}

#[test]
fn order_is_by_value_then_by_id() {
    assert_eq!(ids(&sorted(&[1.0, 3.0, -0.0, 3.0, 0.0, -2.0])), [1, 3, 0, 2, 4, 5]);
}

#[test]
fn top_p_at_its_ends() {
    let mut kept = sorted(&[0.0; 4]);
    top_p::keep(&mut kept, 0.5);
    assert_eq!(ids(&kept), [0, 1]);
    top_p::keep(&mut kept, 1e-9);
    assert_eq!(ids(&kept), [0]);
    // The masses 2^26, 2^26 and 1: the first is no half.
    let mut kept = sorted(&[0.0, 0.0, -17.5]);
    top_p::keep(&mut kept, 0.5);
    assert_eq!(ids(&kept), [0, 1]);
    assert_eq!([fixed_share(1.0), fixed_share(0.5), fixed_share(1e-9)], [0, 32768, 1]);
}

#[test]
fn penalties_count_the_window() {
    let logits = [2.0, -2.0, 2.0, 2.0];
    let sampling = Sampling {
        repeat_penalty: 2.0,
        frequency_penalty: 0.25,
        presence_penalty: 0.5,
        penalty_window: 3,
        ..Sampling::new(0.5, 0)
    };
    // Token 3 is too old; 0 stands there twice, 1 once.
    let values: Vec<f32> = adjust::adjusted(&logits, &sampling, &[3, 0, 1, 0], None).map(|c| c.value).collect();
    assert_eq!(values, [1.0 - 0.5 - 0.5, -4.0 - 0.25 - 0.5, 2.0, 2.0].map(|v: f32| v * 2.0));
}

#[test]
fn greedy_obeys_bans_biases_and_penalties() {
    let logits = [1.0, 5.0, 4.0, 4.0];
    let greedy = |change: fn(&mut Sampling)| {
        let mut sampling = Sampling::GREEDY;
        change(&mut sampling);
        draw(&logits, &sampling, 9, &[1, 2], None)
    };
    assert_eq!(greedy(|_| {}), Some(1));
    assert_eq!(greedy(|s| s.biases = vec![(1, f32::NEG_INFINITY)]), Some(2));
    assert_eq!(greedy(|s| s.biases = vec![(0, 4.5)]), Some(0));
    assert_eq!(greedy(|s| s.repeat_penalty = 4.0), Some(3));
    assert_eq!(greedy(|s| (s.temperature, s.top_k) = (5.0, 1)), Some(1));
    assert_eq!(greedy(|s| s.biases = (0..4).map(|id| (id, f32::NEG_INFINITY)).collect()), None);
}

#[test]
fn settings_that_are_off_change_nothing() {
    let row = random_row(3, 300);
    for position in 0..200 {
        let plain = Sampling::new(0.9, 5);
        // A bias of an id that is never near the top makes the chain run.
        let chain = Sampling { biases: vec![(7, 0.0)], top_k: 300, ..plain.clone() };
        assert_eq!(draw(&row, &chain, position, &[], None), draw(&row, &plain, position, &[], None));
    }
}

#[test]
fn settings_out_of_range_are_named() {
    let option = |change: fn(&mut Sampling)| {
        let mut sampling = Sampling::new(1.0, 0);
        change(&mut sampling);
        match sampling.check(10) {
            Err(Error::BadOption { option, .. }) => option,
            Err(Error::BadToken { .. }) => "token",
            _ => "none",
        }
    };
    assert_eq!(option(|_| {}), "none");
    assert_eq!(option(|s| s.temperature = f32::NAN), "temperature");
    assert_eq!(option(|s| s.top_p = 0.0), "top-p");
    assert_eq!(option(|s| s.min_p = 1.5), "min-p");
    assert_eq!(option(|s| s.typical_p = 1.001), "typical-p");
    assert_eq!(option(|s| s.repeat_penalty = 0.0), "repeat penalty");
    assert_eq!(option(|s| s.frequency_penalty = f32::INFINITY), "frequency penalty");
    assert_eq!(option(|s| s.presence_penalty = -101.0), "presence penalty");
    assert_eq!(option(|s| s.penalty_window = 5000), "penalty window");
    assert_eq!(option(|s| s.biases = vec![(0, 1e9)]), "logit bias");
    assert_eq!(option(|s| s.biases = vec![(3, 1.0), (3, 2.0)]), "logit bias");
    assert_eq!(option(|s| s.biases = vec![(0, 0.0); 1025]), "logit bias");
    assert_eq!(option(|s| s.biases = vec![(10, 1.0)]), "token");
}

#[test]
fn vocabularies_too_large_to_be_filtered_are_refused() {
    let filtered = Sampling { typical_p: 0.9, ..Sampling::new(1.0, 0) };
    assert!(filtered.check(MAX_FILTERED_VOCAB).is_ok());
    let error = filtered.check(MAX_FILTERED_VOCAB + 1).unwrap_err();
    assert_eq!(
        error.to_string(),
        "vocabulary is 524288 tokens, expected at most 524287 tokens for top-k, top-p, min-p and typical-p"
    );
    assert!(Sampling::new(1.0, 0).check(MAX_FILTERED_VOCAB + 1).is_ok());
}

/// The mask of the ids that `allowed` picks.
fn mask_of(n: u32, allowed: impl Fn(u32) -> bool) -> Vec<u32> {
    let mut mask = vec![0; n.div_ceil(32) as usize];
    (0..n).filter(|id| allowed(*id)).for_each(|id| mask[id as usize / 32] |= 1 << (id % 32));
    mask
}

/// All that can change a draw, one at a time and together.
fn samplings(seed: u64) -> Vec<Sampling> {
    let base = |temperature| Sampling::new(temperature, seed);
    let penal = |s: Sampling| Sampling { repeat_penalty: 1.5, frequency_penalty: -3.0, presence_penalty: 0.5, ..s };
    let biased = |s: Sampling| Sampling { biases: vec![(3, 900.0), (40, -5.0), (41, f32::NEG_INFINITY)], ..s };
    let filtered = |s: Sampling| Sampling { top_k: 30, top_p: 0.9, min_p: 0.02, typical_p: 0.8, ..s };
    let plain = [base(0.0), base(0.5), base(1.0), base(100.0)].into_iter();
    plain
        .flat_map(|s| [s.clone(), penal(s.clone()), biased(s.clone()), filtered(s.clone()), filtered(biased(penal(s)))])
        .collect()
}

/// A mask is as if the others had a logit of -infinity: the noise belongs to id and position.
#[test]
fn a_mask_takes_ids_out_and_changes_nothing_else() {
    for seed in 0..40 {
        let n = [1, 31, 32, 33, 200][seed as usize % 5];
        let row = random_row(seed, n as usize);
        let picked = |id: u32| random_row(seed + 100, n as usize)[id as usize] > 2.0 || id == n / 2;
        let mask = mask_of(n, picked);
        let out: Vec<f32> = (0..n).map(|id| if picked(id) { row[id as usize] } else { f32::NEG_INFINITY }).collect();
        let history: Vec<u32> = (0..n).step_by(3).collect();
        for sampling in samplings(seed) {
            for position in 0..5 {
                let before = row.clone();
                let drawn = draw(&row, &sampling, position, &history, Some(&mask));
                assert_eq!(drawn, draw(&out, &sampling, position, &history, None), "{sampling:?}");
                assert!(drawn.is_none_or(&picked), "{sampling:?}");
                assert_eq!(row, before);
                let all = mask_of(n, |_| true);
                let unmasked = draw(&row, &sampling, position, &history, None);
                assert_eq!(draw(&row, &sampling, position, &history, Some(&all)), unmasked);
            }
        }
    }
}

#[test]
fn a_mask_without_candidates_draws_nothing() {
    let row = [1.0, f32::NAN, f32::NEG_INFINITY, 2.0];
    for sampling in samplings(1) {
        for mask in [&[0][..], &[], &[0b0110], &[0xffff_fff0, u32::MAX]] {
            assert_eq!(draw(&row, &sampling, 3, &[0, 3], Some(mask)), None, "{mask:?}");
        }
    }
    // Ids past the mask's end are not allowed.
    let row: Vec<f32> = (0..40).map(|id| id as f32).collect();
    assert_eq!(draw(&row, &Sampling::GREEDY, 0, &[], Some(&[u32::MAX])), Some(31));
}
