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
        let places = rows * segments.n_stored();
        Self { segments, q: vec![0; places * 32], d: vec![0.0; places], sum: vec![0; places] }
    }

    /// Rows held.
    pub fn rows(&self) -> usize {
        self.d.len() / self.segments.n_stored().max(1)
    }
}
