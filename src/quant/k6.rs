//! Q6_K: file blocks of 256 weights of 6 bits, with a signed 8-bit scale per 16.
//!
//! File: 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 scales, f16 d. Each half of 128 weights has 64 bytes of
//! nibbles (of weights i and i + 64 in byte i) and 32 bytes of pairs (of weights i, i + 32, i + 64, i + 96 in byte i).

use super::codec::{BlockMut, BlockRef, QuantBlock};
use super::{f16_at, q4};

const HIGH: usize = 128;
const SCALES: usize = 192;
const D: usize = 208;

pub(super) fn unpack_super(src: &[u8], out: &mut [u8]) {
    out.copy_from_slice(&src[D..]);
}

pub(super) fn unpack(src: &[u8], sub: usize, out: BlockMut<'_>) {
    out.scales.copy_from_slice(&src[SCALES + 2 * sub..][..2]);
    let (half, quarter) = (sub / 4, sub % 4);
    let low = &src[half * 64 + quarter % 2 * 32..][..32];
    let shift = quarter / 2 * 4;
    for (i, out) in out.quants.iter_mut().enumerate() {
        *out = low[i] >> shift & 15 | (low[i + 16] >> shift & 15) << 4;
    }
    let pairs = &src[HIGH + half * 32..][..32];
    out.high.fill(0);
    for (i, &byte) in pairs.iter().enumerate() {
        out.high[i / 16 * 4 + i % 4] |= (byte >> (2 * quarter) & 3) << (2 * (i % 16 / 4));
    }
}

pub(super) fn decode(block: BlockRef<'_>) -> QuantBlock {
    let low = q4::nibbles(block.quants);
    let pair = |i: usize| block.high[i / 16 * 4 + i % 4] >> (2 * (i % 16 / 4)) & 3;
    QuantBlock {
        q: std::array::from_fn(|i| (low[i] | pair(i) << 4) as i8 - 32),
        sub: [block.scales[0], block.scales[1]].map(|sc| i32::from(sc as i8)),
        dw: f16_at(block.supers, 0),
        dm: None,
    }
}
