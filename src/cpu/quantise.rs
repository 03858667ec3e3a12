//! Activations quantised to int8 per block of 32 (docs/numerics.md, "Quantised activations").

use crate::numerics::segments::Segments;

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
            let amax = x.iter().fold(0.0f32, |m, v| m.max(v.abs()));
            let q = &mut self.q[at * 32..][..32];
            let scale = if amax < f32::from_bits(27 << 23) { 0.0 } else { 127.0 * crate::numerics::exact_recip(amax) };
            for (q, x) in q.iter_mut().zip(x) {
                *q = (x * scale).round_ties_even().clamp(-127.0, 127.0) as i8;
            }
            self.d[at] = if scale == 0.0 { 0.0 } else { amax * (1.0 / 127.0) };
            self.sum[at] = q.iter().map(|q| *q as i32).sum();
        }
    }
}
