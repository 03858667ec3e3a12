//! The product of float weights and float activations: single values in ascending order within a segment.

use super::isa::Isa;
use super::prepare::Prepared;
use crate::cpu::matrix::PackedMatrix;
use crate::quant::PlanesRef;

/// Weight rows that meet one group of activation rows after another while both are in the first cache.
const TILE: usize = 16;

/// A float type.
pub(super) trait Float {
    /// Bytes a value.
    const BYTES: usize;
    /// Four values of W blocks, transposed.
    unsafe fn columns<S: Isa>(from: *const u8, stride: usize) -> [S::F; 4];
}

pub(super) struct F32;
pub(super) struct F16;
pub(super) struct BF16;

impl Float for F32 {
    const BYTES: usize = 4;
    #[inline(always)]
    unsafe fn columns<S: Isa>(from: *const u8, stride: usize) -> [S::F; 4] {
        // SAFETY: the caller's promises.
        unsafe { S::columns_f32(from, stride) }
    }
}

impl Float for F16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn columns<S: Isa>(from: *const u8, stride: usize) -> [S::F; 4] {
        // SAFETY: the caller's promises.
        unsafe { S::columns_f16(from, stride) }
    }
}

impl Float for BF16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn columns<S: Isa>(from: *const u8, stride: usize) -> [S::F; 4] {
        // SAFETY: the caller's promises.
        unsafe { S::columns_bf16(from, stride) }
    }
}

/// `super::Kernel` of a float type on an instruction set.
#[inline(always)]
pub(super) unsafe fn run<S: Isa, T: Float>(w: &PackedMatrix, x: &Prepared, first: usize, out: &mut [f32]) {
    for (i, out) in out.chunks_mut(TILE * x.rows).enumerate() {
        let mut r = 0;
        // SAFETY: the caller's promises, and planes and activations have slack for a group past their last block.
        unsafe {
            while r + 4 <= x.rows {
                tile::<S, T, 4>(w, x, first + i * TILE, r, out);
                r += 4;
            }
            while r < x.rows {
                tile::<S, T, 1>(w, x, first + i * TILE, r, out);
                r += 1;
            }
        }
    }
}

/// The weight rows from `first` on, as many as `out` holds, times `R` rows of activations from `r` on.
#[inline(always)]
unsafe fn tile<S: Isa, T: Float, const R: usize>(
    w: &PackedMatrix,
    x: &Prepared,
    first: usize,
    r: usize,
    out: &mut [f32],
) {
    // Lanes that no segment has stay 0.
    let mut lanes = [[0.0f32; 32]; R];
    for (j, out) in out.chunks_exact_mut(x.rows).enumerate() {
        // SAFETY: as in `run`.
        unsafe {
            fold::<S, T, R>(w, &w.planes_from(first + j), x, r, &mut lanes);
            for (lanes, out) in lanes.iter().zip(&mut out[r..]) {
                *out = S::tree(lanes.as_ptr());
            }
        }
    }
}

/// Folds the segments of one weight row, a lane each, over `R` rows of activations from `first` on.
#[inline(always)]
unsafe fn fold<S: Isa, T: Float, const R: usize>(
    w: &PackedMatrix,
    row: &PlanesRef<'_>,
    x: &Prepared,
    first: usize,
    lanes: &mut [[f32; 32]; R],
) {
    let segments = w.layout().segments;
    let block = 32 * T::BYTES;
    let mut lane = 0;
    // SAFETY: as in `run`; the last group ends at or below lane 32, since W divides 32.
    unsafe {
        while lane < segments.count {
            let mut acc = [S::zero_f32(); R];
            for t in 0..segments.len {
                let from = row.quants.as_ptr().add((t * segments.count + lane) * block);
                for quad in 0..8 {
                    let w = T::columns::<S>(from.add(quad * 4 * T::BYTES), block);
                    for (r, acc) in acc.iter_mut().enumerate() {
                        let x = &x.floats[(first + r) * segments.len + t];
                        for (c, &w) in w.iter().enumerate() {
                            let x = S::load_f32(x[quad * 4 + c].as_ptr().add(lane));
                            *acc = S::add_f32(*acc, S::mul_f32(w, x));
                        }
                    }
                }
            }
            for (lanes, acc) in lanes.iter_mut().zip(acc) {
                S::store_f32(lanes.as_mut_ptr().add(lane), S::keep(acc, (segments.count - lane).min(S::W)));
            }
            lane += S::W;
        }
    }
}
