//! Q5_0 and Q5_1: Q4 blocks with a fifth bit. File: f16 d, (f16 m,) u32 of fifth bits (bit i of weight i), 16 bytes.
//!
//! In the `high` plane bit j of byte b belongs to weight 4j + b, so that a shift and a mask give the fifth bits of four
//! neighbours, one a byte.

use super::codec::{BlockMut, BlockRef, QuantBlock};
use super::{f16_at, q4};

pub(super) fn unpack_0(src: &[u8], _sub: usize, out: BlockMut<'_>) {
    out.scales.copy_from_slice(&src[..2]);
    unpack_bits(&src[2..], out.high, out.quants);
}

pub(super) fn unpack_1(src: &[u8], _sub: usize, out: BlockMut<'_>) {
    out.scales.copy_from_slice(&src[..4]);
    unpack_bits(&src[4..], out.high, out.quants);
}

fn unpack_bits(src: &[u8], high: &mut [u8], quants: &mut [u8]) {
    let bits = u32::from_le_bytes([src[0], src[1], src[2], src[3]]);
    high.copy_from_slice(&pack_fifth(|i| bits >> i & 1).to_le_bytes());
    quants.copy_from_slice(&src[4..]);
}

/// The `high` word of a block from the fifth bit (0 or 1) of each weight.
pub(super) fn pack_fifth(bit: impl Fn(usize) -> u32) -> u32 {
    (0..32).fold(0, |word, i| word | bit(i) << (8 * (i % 4) + i / 4))
}

pub(super) fn decode_0(block: BlockRef<'_>) -> QuantBlock {
    QuantBlock::new(five_bits(&block).map(|q| q as i8 - 16), f16_at(block.scales, 0), None)
}

pub(super) fn decode_1(block: BlockRef<'_>) -> QuantBlock {
    let (d, m) = (f16_at(block.scales, 0), f16_at(block.scales, 2));
    QuantBlock::new(five_bits(&block).map(|q| q as i8), d, Some(m))
}

/// The 32 weights of 5 bits of a block.
pub(super) fn five_bits(block: &BlockRef<'_>) -> [u8; 32] {
    let low = q4::nibbles(block.quants);
    std::array::from_fn(|i| low[i] | (block.high[i % 4] >> (i / 4) & 1) << 4)
}
