//! The filters against naive references in f64, the draw against its distribution.

use super::candidates::{self, Candidate};
use super::*;
use crate::error::Error;
use crate::micro::rng::Rng;
use crate::numerics::philox::gumbel_of;

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
fn top_k_is_exact() {
    for seed in 0..50 {
        let row = random_row(seed, 200);
        let all = sorted(&row);
        for k in [1, 2, 17, 199, 200, 201, u32::MAX] {
            let mut kept = candidates::of(&row.iter().map(|v| Some(*v)).collect::<Vec<_>>());
            top_k::keep(&mut kept, k);
            candidates::sort(&mut kept);
            // An id stays where fewer than k ids come before it.
            let comes_before = |a: &Candidate, b: &Candidate| a.value > b.value || (a.value == b.value && a.id < b.id);
            let stays = |c: &&Candidate| all.iter().filter(|other| comes_before(other, c)).count() < k as usize;
            let wanted: Vec<_> = all.iter().filter(stays).map(|c| c.id).collect();
            assert_eq!(ids(&kept), wanted, "k {k}");
        }
    }
}

#[test]
fn top_p_is_the_smallest_set_that_reaches_its_mass() {
    for seed in 0..50 {
        let all = sorted(&random_row(seed, 200));
        let masses: Vec<f64> = all.iter().map(|c| f64::from(c.value).exp()).collect();
        let total: f64 = masses.iter().sum();
        for p in [0.02, 0.3, 0.5, 0.9, 0.97] {
            let mut kept = all.clone();
            top_p::keep(&mut kept, p);
            assert_eq!(kept[..], all[..kept.len()]);
            let mass: f64 = masses[..kept.len()].iter().sum::<f64>() / total;
            let without_last = mass - masses[kept.len() - 1] / total;
            let (p, slack) = (f64::from(p), 2e-5);
            assert!(mass >= p - slack && without_last < p + slack, "p {p}: {without_last} to {mass}");
        }
    }
}

#[test]
fn top_p_at_its_ends() {
    let mut kept = sorted(&[0.0; 4]);
    top_p::keep(&mut kept, 0.5);
    assert_eq!(ids(&kept), [0, 1]);
    top_p::keep(&mut kept, 1e-9);
    assert_eq!(ids(&kept), [0]);
    assert_eq!([fixed_share(1.0), fixed_share(0.5), fixed_share(1e-9)], [0, 32768, 1]);
}

#[test]
fn min_p_compares_with_the_likeliest() {
    for seed in 0..50 {
        let all = sorted(&random_row(seed, 200));
        for p in [0.001, 0.0499, 0.3, 1.0] {
            let mut kept = all.clone();
            min_p::keep(&mut kept, p);
            let likely = |c: &&Candidate| f64::from(c.value - all[0].value).exp() >= f64::from(p);
            assert_eq!(kept.len(), all.iter().filter(likely).count(), "p {p}");
        }
    }
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
    let values = adjust::adjusted(&logits, &sampling, &[3, 0, 1, 0]);
    let halves = [1.0 - 0.5 - 0.5, -4.0 - 0.25 - 0.5, 2.0, 2.0].map(|v: f32| Some(v * 2.0));
    assert_eq!(values, halves);
}

#[test]
fn greedy_obeys_bans_biases_and_penalties() {
    let logits = [1.0, 5.0, 4.0, 4.0];
    let greedy = |change: fn(&mut Sampling)| {
        let mut sampling = Sampling::GREEDY;
        change(&mut sampling);
        draw(&logits, &sampling, 9, &[1, 2])
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
        assert_eq!(draw(&row, &chain, position, &[]), draw(&row, &plain, position, &[]));
    }
}

/// Chi-square of draws from what the filters keep.
#[test]
fn draws_follow_the_kept_distribution() {
    let logits = [0.0, 1.0, 2.0, 0.5, 1.5, -8.0, 2.0, -1.0];
    let sampling = Sampling { top_k: 6, top_p: 0.97, min_p: 0.01, ..Sampling::new(1.0, 99) };
    let n = 20_000;
    let mut counts = [0u32; 8];
    for position in 0..n {
        counts[draw(&logits, &sampling, position, &[]).unwrap() as usize] += 1;
    }
    let total: f64 = logits.iter().take(7).filter(|l| **l >= 0.0).map(|l: &f32| f64::from(*l).exp()).sum();
    let mut chi_square = 0.0;
    for (logit, count) in logits.iter().zip(counts) {
        if *logit < 0.0 {
            assert_eq!(count, 0);
            continue;
        }
        let wanted = f64::from(*logit).exp() / total * f64::from(n);
        chi_square += (f64::from(count) - wanted).powi(2) / wanted;
    }
    // 5 degrees of freedom: 20.5 is exceeded once in a thousand.
    assert!(chi_square < 20.5, "{chi_square}: {counts:?}");
}

#[test]
fn extreme_words_leave_the_order_of_distant_values() {
    let (least, most) = (gumbel_of(0), gumbel_of(u32::MAX));
    assert!(least.is_finite() && most.is_finite() && most - least < 20.0);
    let far = Sampling { top_k: 2, ..Sampling::new(1.0, 0) };
    for position in [0, 1, u32::MAX - 1, u32::MAX] {
        assert_eq!(draw(&[0.0, 30.0, f32::INFINITY, f32::NAN], &far, position, &[]), Some(2));
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
    assert_eq!(option(|s| s.repeat_penalty = 0.0), "repeat penalty");
    assert_eq!(option(|s| s.frequency_penalty = f32::INFINITY), "frequency penalty");
    assert_eq!(option(|s| s.presence_penalty = -101.0), "presence penalty");
    assert_eq!(option(|s| s.penalty_window = 5000), "penalty window");
    assert_eq!(option(|s| s.biases = vec![(0, 1e9)]), "logit bias");
    assert_eq!(option(|s| s.biases = vec![(3, 1.0), (3, 2.0)]), "logit bias");
    assert_eq!(option(|s| s.biases = vec![(0, 0.0); 1025]), "logit bias");
    assert_eq!(option(|s| s.biases = vec![(10, 1.0)]), "token");
}
