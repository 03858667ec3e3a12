//! Activations quantised to int8 per block of 32 (docs/numerics.md, "Quantised activations").

use crate::numerics::segments::Segments;
use crate::numerics::{exact_recip, is_finite_bits};

/// Quantised rows, blocks interleaved like those of the weights.
#[derive(Debug, Clone, PartialEq)]
pub struct Q8Rows {
    /// Split of a row.
    pub segments: Segments,
    /// `[rows, n', 32]`
    pub q: Vec<i8>,
    /// Scale of each block, `[rows, n']`.
    pub d: Vec<f32>,
    /// Sum of each block's 32 integers, `[rows, n']`.
    pub sum: Vec<i32>,
}

impl Q8Rows {
    /// `rows` rows of `k` zeros; `k` is a multiple of 32.
    pub fn zeroed(k: usize, rows: usize) -> Self {
        let segments = Segments::of(k);
        let places = rows * segments.places();
        Self { segments, q: vec![0; places * 32], d: vec![0.0; places], sum: vec![0; places] }
    }

    /// Rows held.
    pub fn rows(&self) -> usize {
        self.d.len() / self.segments.places().max(1)
    }

    /// As the device keeps them: the integers, four a word, then bits of the scale and sum of each block.
    pub(crate) fn words(&self) -> Vec<u32> {
        let mut words: Vec<u32> = bytemuck::pod_collect_to_vec(&self.q);
        words.extend(self.scale_words());
        words
    }

    /// Bits of the scale and sum of each block, `[rows, n', 2]`.
    pub(crate) fn scale_words(&self) -> Vec<u32> {
        self.d.iter().zip(&self.sum).flat_map(|(d, sum)| [d.to_bits(), *sum as u32]).collect()
    }

    /// Copies of some rows, in the order given.
    pub(super) fn gather(&self, rows: impl Iterator<Item = usize> + Clone) -> Self {
        fn copied<T: Copy>(all: &[T], len: usize, rows: impl Iterator<Item = usize>) -> Vec<T> {
            rows.flat_map(|r| &all[r * len..][..len]).copied().collect()
        }
        let places = self.segments.places();
        Q8Rows {
            segments: self.segments,
            q: copied(&self.q, places * 32, rows.clone()),
            d: copied(&self.d, places, rows.clone()),
            sum: copied(&self.sum, places, rows),
        }
    }

    /// Quantises `x [k]` into row `r`.
    pub fn quantise_row(&mut self, r: usize, x: &[f32]) {
        let first = r * self.segments.places();
        for (b, x) in x.as_chunks::<32>().0.iter().enumerate() {
            let at = first + self.segments.place(b);
            let block = quantise_block(x);
            self.q[at * 32..][..32].copy_from_slice(&block.q);
            self.d[at] = block.d;
            self.sum[at] = block.sum;
        }
    }
}

/// 32 quantised values.
struct Q8Block {
    q: [i8; 32],
    d: f32,
    sum: i32,
}

/// Blocks whose largest magnitude is below 2^-100 count as zero.
const SMALLEST: f32 = f32::from_bits((127 - 100) << 23);
/// Added to a number below 2^22 it leaves the nearest integer, ties to even, in the low bits.
const ROUNDER: f32 = 12_582_912.0;

/// Written as loops over whole blocks, which compilers turn into vector code.
fn quantise_block(x: &[f32; 32]) -> Q8Block {
    // Magnitudes compare as their bits, NaN above all.
    let amax_bits = x.iter().fold(0, |most, v| most.max(v.to_bits() & 0x7fff_ffff));
    let amax = f32::from_bits(amax_bits);
    if !is_finite_bits(amax) {
        return Q8Block { q: [0; 32], d: f32::from_bits(0x7fc0_0000), sum: 0 };
    }
    if amax < SMALLEST {
        return Q8Block { q: [0; 32], d: 0.0, sum: 0 };
    }
    let r = 127.0 * exact_recip(amax);
    let integer = |x: f32| ((x * r + ROUNDER).to_bits() as i32 - ROUNDER.to_bits() as i32).clamp(-127, 127);
    let q = x.map(integer);
    Q8Block { q: q.map(|q| q as i8), d: amax * (1.0 / 127.0), sum: q.iter().sum() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The contract, word for word.
    fn reference(x: &[f32; 32]) -> ([i8; 32], f32) {
        if x.iter().any(|x| !x.is_finite()) {
            return ([0; 32], f32::from_bits(0x7fc0_0000));
        }
        let amax = x.iter().fold(0.0f32, |amax, x| amax.max(x.abs()));
        if amax < 2f32.powi(-100) {
            return ([0; 32], 0.0);
        }
        let r = 127.0 * exact_recip(amax);
        (x.map(|x| (x * r).round_ties_even().clamp(-127.0, 127.0) as i8), amax * (1.0 / 127.0))
    }

    #[test]
    fn blocks_follow_the_contract() {
        let ramp: [f32; 32] = std::array::from_fn(|i| (i as f32 - 15.5) * 0.37);
        let ties: [f32; 32] = std::array::from_fn(|i| if i == 0 { 127.0 } else { i as f32 - 16.5 });
        let with = |value: f32| {
            let mut x = ramp;
            x[7] = value;
            x
        };
        let cases = [
            ("ramp", ramp),
            ("ties", ties),
            ("zeros", [0.0; 32]),
            ("negative zeros", [-0.0; 32]),
            ("just below the smallest", [-2f32.powi(-100) * 0.999_999_9; 32]),
            ("the smallest", [-2f32.powi(-100); 32]),
            ("large", with(-1e38)),
            ("largest", with(f32::MAX)),
            ("NaN", with(f32::NAN)),
            ("infinity", with(f32::NEG_INFINITY)),
        ];
        for (name, x) in cases {
            let (found, (q, d)) = (quantise_block(&x), reference(&x));
            assert_eq!((found.q, found.d.to_bits()), (q, d.to_bits()), "{name}");
            assert_eq!(found.sum, q.iter().map(|&q| i32::from(q)).sum::<i32>(), "{name}");
        }
    }

    #[test]
    fn blocks_are_interleaved() {
        // 48 blocks: 24 segments of 2. Block b holds b + 1 everywhere.
        let k = 1536;
        let x: Vec<f32> = (0..2 * k).map(|i| (i % k / 32 + 1) as f32).collect();
        let mut rows = Q8Rows::zeroed(k, 2);
        rows.quantise_row(1, &x[k..]);
        assert!(rows.d[..48].iter().all(|&d| d == 0.0), "row 0 is untouched");
        for b in 0..48 {
            let at = 48 + b % 2 * 24 + b / 2;
            assert_eq!(rows.d[at], (b + 1) as f32 * (1.0 / 127.0));
            assert_eq!(rows.sum[at], 32 * 127);
        }
    }
}
