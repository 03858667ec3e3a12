//! Q4_K and Q5_K: file blocks of 256 weights, eight blocks of 32 with 6-bit scales and minimums.
//!
//! File: f16 d, f16 dmin, 12 bytes of packed scales, (Q5_K: 32 bytes of fifth bits, bit s of byte i of weight i of block
//! s,) 128 bytes of nibbles: of every 32 bytes the low nibbles are one block and the high nibbles the next.

use super::codec::{BlockMut, BlockRef, QuantBlock};
use super::{f16_at, q4, q5};

const SCALES: usize = 4;
const FIFTH: usize = 16;

pub(super) fn unpack_super(src: &[u8], out: &mut [u8]) {
    out.copy_from_slice(&src[..4]);
}

pub(super) fn unpack_4(src: &[u8], sub: usize, out: BlockMut<'_>) {
    out.scales.copy_from_slice(&scale_and_min(&src[SCALES..], sub));
    unpack_nibbles(&src[16..], sub, out.quants);
}

pub(super) fn unpack_5(src: &[u8], sub: usize, out: BlockMut<'_>) {
    out.scales.copy_from_slice(&scale_and_min(&src[SCALES..], sub));
    let word = q5::pack_fifth(|i| u32::from(src[FIFTH + i] >> sub & 1));
    out.high.copy_from_slice(&word.to_le_bytes());
    unpack_nibbles(&src[48..], sub, out.quants);
}

/// The 6-bit scale and minimum of block `sub`: blocks 0 to 3 lie in the low six bits of bytes 0..4 and 4..8; blocks 4 to
/// 7 have their low four bits in the nibbles of bytes 8..12 and their high two above those of blocks 0 to 3.
fn scale_and_min(packed: &[u8], sub: usize) -> [u8; 2] {
    if sub < 4 {
        return [packed[sub] & 63, packed[sub + 4] & 63];
    }
    let (d, m, both) = (packed[sub - 4], packed[sub], packed[sub + 4]);
    [both & 15 | d >> 2 & 0x30, both >> 4 | m >> 2 & 0x30]
}

/// Copies the 32 nibbles of block `sub` so that byte i holds weights i and i + 16.
fn unpack_nibbles(nibbles: &[u8], sub: usize, out: &mut [u8]) {
    let bytes = &nibbles[sub / 2 * 32..][..32];
    let shift = 4 * (sub % 2);
    for (i, out) in out.iter_mut().enumerate() {
        *out = bytes[i] >> shift & 15 | (bytes[i + 16] >> shift & 15) << 4;
    }
}

pub(super) fn decode_4(block: BlockRef<'_>) -> QuantBlock {
    scaled(&block, q4::nibbles(block.quants))
}

pub(super) fn decode_5(block: BlockRef<'_>) -> QuantBlock {
    scaled(&block, q5::five_bits(&block))
}

fn scaled(block: &BlockRef<'_>, q: [u8; 32]) -> QuantBlock {
    let (d, dmin) = (f16_at(block.supers, 0), f16_at(block.supers, 2));
    let [sc, mn] = [block.scales[0], block.scales[1]].map(f32::from);
    QuantBlock::new(q.map(|q| q as i8), d * sc, Some(-(dmin * mn)))
}
