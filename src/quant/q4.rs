//! Q4_0 and Q4_1: blocks of 32 weights of 4 bits. File: f16 d, (f16 m,) 16 bytes; byte i holds weights i and i + 16.

use super::codec::{BlockMut, BlockRef, QuantBlock};
use super::f16_at;

pub(super) fn unpack_0(src: &[u8], _sub: usize, out: BlockMut<'_>) {
    out.scales.copy_from_slice(&src[..2]);
    out.quants.copy_from_slice(&src[2..]);
}

pub(super) fn unpack_1(src: &[u8], _sub: usize, out: BlockMut<'_>) {
    out.scales.copy_from_slice(&src[..4]);
    out.quants.copy_from_slice(&src[4..]);
}

pub(super) fn decode_0(block: BlockRef<'_>) -> QuantBlock {
    QuantBlock::new(nibbles(block.quants).map(|q| q as i8 - 8), f16_at(block.scales, 0), None)
}

pub(super) fn decode_1(block: BlockRef<'_>) -> QuantBlock {
    let (d, m) = (f16_at(block.scales, 0), f16_at(block.scales, 2));
    QuantBlock::new(nibbles(block.quants).map(|q| q as i8), d, Some(m))
}

/// The 32 nibbles of a block's quants in the order of the weights.
pub(super) fn nibbles(quants: &[u8]) -> [u8; 32] {
    std::array::from_fn(|i| quants[i % 16] >> (4 * (i / 16)) & 15)
}
