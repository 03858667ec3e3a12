//! Draws against their distribution, and the random words they are made of.

use super::*;
use crate::numerics::gumbel;
use crate::numerics::philox::{gumbel_of, random_word, uniform};

/// Sum of (found - wanted)^2 / wanted.
fn chi_square(found: &[u32], wanted: &[f64]) -> f64 {
    let terms = found.iter().zip(wanted).filter(|(_, wanted)| **wanted > 0.0);
    terms.map(|(found, wanted)| (f64::from(*found) - wanted).powi(2) / wanted).sum()
}

/// Draws of `n` positions under eight seeds, by id.
fn counts(logits: &[f32], sampling: &Sampling, n: u32) -> Vec<u32> {
    let mut counts = vec![0; logits.len()];
    for i in 0..n {
        let sampling = Sampling { seed: sampling.seed + u64::from(i % 8) * 0x1_0000_0001, ..sampling.clone() };
        counts[draw(logits, &sampling, i / 8 * 3, &[], None).unwrap() as usize] += 1;
    }
    counts
}

/// How often each id is to be drawn of `n` times; those in `kept` alone.
fn wanted(logits: &[f32], temperature: f64, kept: &[u32], n: u32) -> Vec<f64> {
    let mut wanted = vec![0.0; logits.len()];
    for id in kept {
        wanted[*id as usize] = (f64::from(logits[*id as usize]) / temperature).exp();
    }
    let total: f64 = wanted.iter().sum();
    wanted.into_iter().map(|w| w / total * f64::from(n)).collect()
}

#[test]
fn draws_follow_the_softmax() {
    let logits: Vec<f32> = (0..16).map(|i| ((i * 7 % 16) as f32) / 5.0).collect();
    let (n, all): (_, Vec<u32>) = (200_000, (0..16).collect());
    for temperature in [0.7, 1.0, 2.0] {
        let counts = counts(&logits, &Sampling::new(temperature, 2000), n);
        let found = chi_square(&counts, &wanted(&logits, f64::from(temperature), &all, n));
        // 15 degrees of freedom: 37.7 is exceeded once in a thousand.
        assert!(found < 37.7, "T {temperature}: {found}, {counts:?}");
        let other = chi_square(&counts, &wanted(&logits, f64::from(temperature) * 1.05, &all, n));
        assert!(other > 37.7, "a twentieth of the temperature makes no difference: {other}");
    }
}

#[test]
fn filtered_draws_follow_the_softmax_of_what_is_kept() {
    let logits = [0.0, 1.0, 2.0, 0.5, 1.5, -8.0, 2.0, -1.0, 1.2];
    let cases = [
        (Sampling { top_k: 7, top_p: 0.97, min_p: 0.01, ..Sampling::new(1.0, 99) }, vec![0, 1, 2, 3, 4, 6, 8], 22.5),
        (Sampling { typical_p: 0.5, ..Sampling::new(1.0, 4) }, vec![2, 4, 8], 13.8),
    ];
    // 6 and 2 degrees of freedom: the bounds are exceeded once in a thousand.
    for (sampling, kept, bound) in cases {
        let n = 40_000;
        let counts = counts(&logits, &sampling, n);
        let drawn: Vec<u32> = (0..9).filter(|id| counts[*id as usize] > 0).collect();
        assert_eq!(drawn, kept, "{sampling:?}");
        let found = chi_square(&counts, &wanted(&logits, 1.0, &kept, n));
        assert!(found < bound, "{found}: {counts:?}");
    }
}

#[test]
fn words_are_uniform() {
    let n = 400_000;
    for byte in 0..4 {
        let mut counts = [0; 256];
        for i in 0..n {
            let word = random_word(u64::from(i % 7), i / 64, DRAW_STREAM, i % 64);
            counts[word.to_le_bytes()[byte] as usize] += 1;
        }
        let found = chi_square(&counts, &[f64::from(n) / 256.0; 256]);
        // 255 degrees of freedom: 330.5 is exceeded once in a thousand, and 189.4 once missed.
        assert!((189.4..330.5).contains(&found), "byte {byte}: {found}");
    }
}

/// The correlation of uniform numbers of (seed, position, id) with those of others.
fn correlation(other: impl Fn(u64, u32, u32) -> (u64, u32, u32)) -> f64 {
    let n = 100_000;
    let number = |(seed, position, id)| f64::from(uniform(random_word(seed, position, DRAW_STREAM, id))) - 0.5;
    let product = |i: u32| {
        let (seed, position, id) = (u64::from(i % 5), i / 40, i / 5 % 8);
        number((seed, position, id)) * number(other(seed, position, id))
    };
    // The variance of each is 1 / 12.
    (0..n).map(product).sum::<f64>() * 12.0 / f64::from(n)
}

#[test]
fn neighbours_are_independent() {
    // 3.3 standard deviations
    let bound = 3.3 / 100_000f64.sqrt();
    let cases = [
        ("position", correlation(|seed, position, id| (seed, position + 1, id))),
        ("id of the same block", correlation(|seed, position, id| (seed, position, id ^ 1))),
        ("id of another block", correlation(|seed, position, id| (seed, position, id + 4))),
        ("position and id", correlation(|seed, position, id| (seed, position + 1, id + 1))),
        ("seed", correlation(|seed, position, id| (seed + 5, position, id))),
        ("upper word of the seed", correlation(|seed, position, id| (seed + (1 << 32), position, id))),
    ];
    for (neighbour, found) in cases {
        assert!(found.abs() < bound, "next {neighbour}: {found}");
    }
    assert!(correlation(|seed, position, id| (seed, position, id)) > 0.9);
}

#[test]
fn successive_draws_are_independent() {
    let (logits, n) = ([1.0; 4], 64_000);
    let ids: Vec<_> = (0..=n).map(|p| draw(&logits, &Sampling::new(1.0, 12), p, &[], None).unwrap()).collect();
    let mut pairs = [0; 16];
    ids.windows(2).for_each(|pair| pairs[(pair[0] * 4 + pair[1]) as usize] += 1);
    let found = chi_square(&pairs, &[f64::from(n) / 16.0; 16]);
    // 15 degrees of freedom: 37.7 is exceeded once in a thousand.
    assert!(found < 37.7, "{found}: {pairs:?}");
}

/// Whatever the words are: 0, all ones, or one of them where it hurts most.
#[test]
fn extreme_words_draw_nothing_that_is_out() {
    let (least, most) = (gumbel_of(0), gumbel_of(u32::MAX));
    assert!(least.is_finite() && most.is_finite() && most - least < 20.0, "{least} to {most}");
    let logits = [3.0, 9.0, 2.9, f32::NAN, -4.0, f32::NEG_INFINITY, 2.8, -30.0];
    let sampling = Sampling { biases: vec![(1, f32::NEG_INFINITY)], top_k: 3, ..Sampling::new(1.0, 0) };
    let typical = Sampling { typical_p: 0.3, ..sampling.clone() };
    let unfiltered = Sampling { top_k: 0, ..sampling.clone() };
    for (sampling, in_draw) in [(sampling, vec![0, 2, 6]), (typical, vec![2]), (unfiltered, vec![0, 2, 4, 6, 7])] {
        let draw = |word: &dyn Fn(u32) -> u32| pick(kept(&logits, &sampling, &[], None), &sampling, word).unwrap();
        // Equal noise leaves the order as it is.
        assert_eq!([draw(&|_| 0), draw(&|_| u32::MAX)], [in_draw[0]; 2]);
        for favoured in 0..logits.len() as u32 {
            let id = draw(&|id| if id == favoured { u32::MAX } else { 0 });
            assert!(in_draw.contains(&id), "{id}");
            // A value 30 lower is out of reach of all noise, one 10 lower is not.
            let reachable = in_draw.contains(&favoured) && favoured != 7;
            assert_eq!(id == favoured, reachable || favoured == in_draw[0], "{favoured} gives {id}");
        }
    }
}

#[test]
fn extreme_values_keep_their_order_at_any_temperature() {
    for temperature in [0.01, 0.5, 100.0] {
        for position in [0, 1, u32::MAX - 1, u32::MAX] {
            for top_k in [0, 2] {
                let sampling = Sampling { top_k, ..Sampling::new(temperature, 0) };
                let id = draw(&[0.0, 3000.0, f32::INFINITY, f32::NAN], &sampling, position, &[], None);
                assert_eq!(id, Some(2), "T {temperature}, position {position}");
            }
        }
    }
}

#[test]
fn a_draw_is_the_largest_sum_of_value_and_noise() {
    let row = random_row(8, 3000);
    let sampling = Sampling::new(1.0, 77);
    for position in 0..50 {
        let sum = |id: u32| row[id as usize] + gumbel(77, position, DRAW_STREAM, id);
        let wanted = (0..3000).rev().max_by(|a, b| sum(*a).total_cmp(&sum(*b)));
        assert_eq!(draw(&row, &sampling, position, &[], None), wanted);
    }
}

#[test]
fn where_every_id_is_out_nothing_is_drawn() {
    let out = [f32::NAN, f32::NEG_INFINITY, -f32::NAN];
    let banned = Sampling { biases: vec![(3, f32::NEG_INFINITY)], ..Sampling::new(1.0, 0) };
    for sampling in
        [Sampling::GREEDY, Sampling::new(1.0, 0), Sampling { top_p: 0.5, typical_p: 0.5, ..Sampling::new(1.0, 0) }]
    {
        assert_eq!(draw(&out, &sampling, 5, &[], None), None);
        assert_eq!(draw(&[], &sampling, 5, &[], None), None);
        let one = [out[0], out[1], out[2], -1e30, out[1]];
        assert_eq!(draw(&one, &sampling, 5, &[], None), Some(3));
        assert_eq!(draw(&one, &Sampling { biases: banned.biases.clone(), ..sampling }, 5, &[], None), None);
    }
}
