//! Q8_0: blocks of 32 signed bytes. File: f16 d, 32 bytes.

use super::codec::{BlockMut, BlockRef, QuantBlock};
use super::f16_at;

pub(super) fn unpack(src: &[u8], _sub: usize, out: BlockMut<'_>) {
    out.scales.copy_from_slice(&src[..2]);
    out.quants.copy_from_slice(&src[2..]);
}

pub(super) fn decode(block: BlockRef<'_>) -> QuantBlock {
    QuantBlock::new(std::array::from_fn(|i| block.quants[i] as i8), f16_at(block.scales, 0), None)
}
