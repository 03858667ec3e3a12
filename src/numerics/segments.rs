//! How a row's blocks are split into segments, and the trees that combine partial sums (docs/numerics.md, "Blocks, segments,
//! the tree").

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

/// The tree of adjacent pairs over up to 32 values, padded with +0.
pub fn tree32(values: &[f32]) -> f32 {
    tree::<32>(values)
}

/// The tree of adjacent pairs over up to 256 values, padded with +0.
pub fn tree256(values: &[f32]) -> f32 {
    tree::<256>(values)
}

/// `v[i] = v[2i] + v[2i+1]` until one is left; `N` is a power of two and at least `values.len()`.
fn tree<const N: usize>(values: &[f32]) -> f32 {
    let mut v = [0.0; N];
    v[..values.len()].copy_from_slice(values);
    let mut n = N;
    while n > 1 {
        n /= 2;
        for i in 0..n {
            v[i] = v[2 * i] + v[2 * i + 1];
        }
    }
    v[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits() {
        // (k, p, l): one block; few; 18 for 576; a multiple of 32; 24, 20 and 19; a prime number of blocks
        let cases = [
            (32, 1, 1),
            (576, 18, 1),
            (1024, 32, 1),
            (2048, 32, 2),
            (1536, 24, 2),
            (2560, 20, 4),
            (9728, 19, 16),
            (37 * 32, 32, 2),
            (34 * 32, 17, 2),
        ];
        for (k, p, l) in cases {
            let s = Segments::of(k);
            assert_eq!((s.blocks, s.count, s.len), (k / 32, p, l), "k = {k}");
        }
    }

    #[test]
    fn places_are_a_permutation() {
        for n in 1..1200 {
            let s = Segments::of(n * 32);
            assert!(s.count <= 32 && s.places() >= n);
            let mut seen = vec![false; s.places()];
            for b in 0..s.places() {
                assert_eq!(s.block(s.place(b)), b);
                assert!(!std::mem::replace(&mut seen[s.place(b)], true));
            }
        }
    }

    #[test]
    fn trees() {
        assert_eq!(tree32(&[]), 0.0);
        assert_eq!(tree32(&[1.0; 19]), 19.0);
        assert_eq!(tree256(&[1.0; 256]), 256.0);
        // adjacent pairs first: (1 + 1e8) + (-1e8 + 1) loses both ones
        assert_eq!(tree32(&[1.0, 1e8, -1e8, 1.0]), 0.0);
    }
}
