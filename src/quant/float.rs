//! F32, F16, BF16: values in order.

use super::codec::BlockMut;
use super::f16_at;

/// File bytes of 32 values: copied.
pub(super) fn unpack(src: &[u8], _sub: usize, out: BlockMut<'_>) {
    out.quants.copy_from_slice(src);
}

pub(super) fn f32_values(quants: &[u8], out: &mut [f32]) {
    for (out, b) in out.iter_mut().zip(quants.chunks_exact(4)) {
        *out = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
    }
}

pub(super) fn f16_values(quants: &[u8], out: &mut [f32]) {
    for (i, out) in out.iter_mut().enumerate() {
        *out = f16_at(quants, 2 * i);
    }
}

pub(super) fn bf16_values(quants: &[u8], out: &mut [f32]) {
    for (out, b) in out.iter_mut().zip(quants.chunks_exact(2)) {
        *out = f32::from_bits(u32::from_le_bytes([0, 0, b[0], b[1]]));
    }
}
