//! How a row's blocks are split into segments, and the trees that combine partial sums.

/// The split of a row of blocks: `p` segments of `l` blocks, `p * l >= n_blocks`; the rest is padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Segments {
    /// Blocks of 32 values in the row.
    pub n_blocks: usize,
    /// Segments: 1 to 32, the lanes that fold a row.
    pub p: usize,
    /// Blocks a segment, padding included.
    pub l: usize,
}

impl Segments {
    /// The split of a row of `k` values; `k` is a multiple of 32.
    pub fn of(k: usize) -> Self {
        debug_assert_eq!(k % 32, 0, "a row has whole blocks of 32 values");
        let n = k / 32;
        let p = match n {
            0..=32 => n.max(1),
            _ => (16..=32).rev().find(|p| n.is_multiple_of(*p)).unwrap_or(32),
        };
        Self { n_blocks: n, p, l: n.div_ceil(p).max(1) }
    }

    /// Blocks stored for a row, padding included.
    pub fn n_stored(self) -> usize {
        self.p * self.l
    }

    /// Where block `block` (in file order) is stored: block `s * l + t` lies at `t * p + s`.
    pub fn place(self, block: usize) -> usize {
        block % self.l * self.p + block / self.l
    }

    /// The block stored at `place`; `n_blocks` and above are padding.
    pub fn block_at(self, place: usize) -> usize {
        place % self.p * self.l + place / self.p
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
            assert_eq!((s.n_blocks, s.p, s.l), (k / 32, p, l), "k = {k}");
        }
    }

    #[test]
    fn places_are_a_permutation() {
        for n in 1..1200 {
            let s = Segments::of(n * 32);
            assert!(s.p <= 32 && s.n_stored() >= n);
            let mut seen = vec![false; s.n_stored()];
            for b in 0..s.n_stored() {
                assert_eq!(s.block_at(s.place(b)), b);
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
