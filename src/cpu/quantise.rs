//! Activations quantised to int8 per block of 32 (docs/numerics.md, "Quantised activations").

use crate::numerics::segments::Segments;
use crate::numerics::{exact_recip, guard};

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

    /// Quantises `x [k]` into row `r`.
    pub fn quantise_row(&mut self, r: usize, x: &[f32]) {
        let first = r * self.segments.places();
        for (b, x) in x.chunks_exact(32).enumerate() {
            let at = first + self.segments.place(b);
            let amax = x.iter().map(|x| x.to_bits() & 0x7fff_ffff).max().unwrap_or(0);
            let (d, scale) = block_scale(f32::from_bits(amax));
            let q = &mut self.q[at * 32..][..32];
            for (q, x) in q.iter_mut().zip(x) {
                *q = round(x * scale).clamp(-127.0, 127.0) as i8;
            }
            self.d[at] = d;
            self.sum[at] = q.iter().map(|q| i32::from(*q)).sum();
        }
    }
}

/// Scale of a block, and the factor on its values before they are rounded: 0 where every integer is to be 0.
fn block_scale(amax: f32) -> (f32, f32) {
    /// 2^-100.
    const SMALLEST: f32 = f32::from_bits(27 << 23);
    if !amax.is_finite() {
        (f32::from_bits(0x7fc0_0000), 0.0)
    } else if amax < SMALLEST {
        (0.0, 0.0)
    } else {
        (amax * (1.0 / 127.0), guard(127.0 * exact_recip(amax)))
    }
}

/// Nearest integer, ties to even, for magnitudes below 2^22: adding 1.5 * 2^23 leaves no room for a fraction.
fn round(x: f32) -> f32 {
    const MAGIC: f32 = 12_582_912.0;
    (x + MAGIC) - MAGIC
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantised(x: &[f32]) -> Q8Rows {
        let mut rows = Q8Rows::zeroed(x.len(), 1);
        rows.quantise_row(0, x);
        rows
    }

    #[test]
    fn largest_magnitude_is_127_and_ties_go_to_even() {
        let mut x = [0.0; 32];
        (x[0], x[1], x[2], x[3]) = (-254.0, 5.0, 3.0, -7.0);
        let rows = quantised(&x);
        assert_eq!(rows.q[..4], [-127, 2, 2, -4]);
        assert_eq!((rows.d[0], rows.sum[0]), (2.0, -127));
    }

    #[test]
    fn tiny_and_nonfinite_blocks() {
        let mut x = [1e-31; 64];
        x[40] = f32::INFINITY;
        let rows = quantised(&x);
        assert!(rows.q.iter().all(|q| *q == 0));
        assert_eq!(rows.d[0], 0.0);
        assert_eq!(rows.d[1].to_bits(), 0x7fc0_0000);
    }

    #[test]
    fn blocks_are_interleaved() {
        // 64 blocks: 32 segments of 2, block 1 lies at place 32.
        let mut x = [0.0; 2048];
        x[32] = 1.0;
        assert_eq!(quantised(&x).q[32 * 32], 127);
    }
}
