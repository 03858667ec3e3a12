//! Blocks and segments of a matrix row (docs/numerics.md, "Blocks, segments, the tree").

/// Segments at most, and the width of the combining tree.
pub const MAX_SEGMENTS: usize = 32;

/// How a row's blocks of 32 values are split into contiguous segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segments {
    /// Blocks of the row, n.
    pub blocks: usize,
    /// Segments, P.
    pub count: usize,
    /// Blocks a segment, L.
    pub len: usize,
}

impl Segments {
    /// The split of a row of `k` values, a multiple of 32.
    pub fn of(k: usize) -> Self {
        let blocks = k / 32;
        let divisor = (1..=MAX_SEGMENTS).rev().find(|p| blocks.is_multiple_of(*p)).unwrap_or(1);
        let count = if blocks <= MAX_SEGMENTS {
            blocks
        } else if divisor >= MAX_SEGMENTS / 2 {
            divisor
        } else {
            MAX_SEGMENTS
        };
        Self { blocks, count, len: blocks.div_ceil(count.max(1)) }
    }

    /// Blocks of the row with its padding, n' = P·L.
    pub fn places(&self) -> usize {
        self.count * self.len
    }

    /// The place at which block `b` is stored.
    pub fn place(&self, b: usize) -> usize {
        b % self.len * self.count + b / self.len
    }

    /// The block stored at place `i`; at least `blocks` for padding.
    pub fn block(&self, i: usize) -> usize {
        i % self.count * self.len + i / self.count
    }
}
