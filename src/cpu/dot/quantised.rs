//! The product of quantised weights and int8 activations.

use super::isa::Isa;
use super::prepare::Prepared;
use crate::cpu::matrix::PackedMatrix;
use crate::quant::PlanesRef;

/// Weight rows that meet one group of activation rows after another while both are in the first cache.
const TILE: usize = 16;

/// Where the scales of a block lie.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Scales {
    /// `scales`: f16 d.
    Half,
    /// `scales`: f16 d, f16 m.
    HalfPair,
    /// `scales`: u8 sc, u8 mn; `supers`: f16 d, f16 dmin.
    SuperPair,
    /// `scales`: i8 of the first 16, i8 of the last 16; `supers`: f16 d.
    SuperHalves,
}

/// A block format, as constants.
pub(super) trait Format {
    /// Whether weights are signed bytes, not nibbles.
    const BYTES: bool = false;
    /// Bits a weight in the `high` plane.
    const HIGH: u32 = 0;
    /// Whether stored integers exceed the weights, by the offset in `Prepared::bias`.
    const OFFSET: bool;
    /// Scales.
    const SCALES: Scales;
}

#[allow(non_camel_case_types)]
pub(super) struct Q4_0;
impl Format for Q4_0 {
    const OFFSET: bool = true;
    const SCALES: Scales = Scales::Half;
}

#[allow(non_camel_case_types)]
pub(super) struct Q4_1;
impl Format for Q4_1 {
    const OFFSET: bool = false;
    const SCALES: Scales = Scales::HalfPair;
}

#[allow(non_camel_case_types)]
pub(super) struct Q5_0;
impl Format for Q5_0 {
    const HIGH: u32 = 1;
    const OFFSET: bool = true;
    const SCALES: Scales = Scales::Half;
}

#[allow(non_camel_case_types)]
pub(super) struct Q5_1;
impl Format for Q5_1 {
    const HIGH: u32 = 1;
    const OFFSET: bool = false;
    const SCALES: Scales = Scales::HalfPair;
}

#[allow(non_camel_case_types)]
pub(super) struct Q8_0;
impl Format for Q8_0 {
    const BYTES: bool = true;
    const OFFSET: bool = false;
    const SCALES: Scales = Scales::Half;
}

pub(super) struct Q4K;
impl Format for Q4K {
    const OFFSET: bool = false;
    const SCALES: Scales = Scales::SuperPair;
}

pub(super) struct Q5K;
impl Format for Q5K {
    const HIGH: u32 = 1;
    const OFFSET: bool = false;
    const SCALES: Scales = Scales::SuperPair;
}

pub(super) struct Q6K;
impl Format for Q6K {
    const HIGH: u32 = 2;
    const OFFSET: bool = true;
    const SCALES: Scales = Scales::SuperHalves;
}

/// A group of weights: W blocks.
#[derive(Clone, Copy)]
struct Group<S: Isa> {
    /// Weights 0 to 15 of the blocks.
    first: [S::I; 4],
    /// Weights 16 to 31.
    last: [S::I; 4],
    dw: S::F,
    /// Minus the offset of the weights.
    min: S::F,
    /// Integer scales of the halves.
    sub: (S::I, S::I),
}

/// `super::Kernel` of a format on an instruction set.
#[inline(always)]
pub(super) unsafe fn run<S: Isa, T: Format>(w: &PackedMatrix, x: &Prepared, first: usize, out: &mut [f32]) {
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
unsafe fn tile<S: Isa, T: Format, const R: usize>(
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
unsafe fn fold<S: Isa, T: Format, const R: usize>(
    w: &PackedMatrix,
    row: &PlanesRef<'_>,
    x: &Prepared,
    first: usize,
    lanes: &mut [[f32; 32]; R],
) {
    let segments = w.layout().segments;
    let mut lane = 0;
    // SAFETY: as in `run`; the last group ends at or below lane 32, since W divides 32.
    unsafe {
        while lane < segments.count {
            let units = (segments.count - lane).div_ceil(S::W / 4).min(4);
            let mut acc = [S::zero_f32(); R];
            for t in 0..segments.len {
                let place = t * segments.count + lane;
                let group = group::<S, T>(row, x, place, units);
                for (r, acc) in acc.iter_mut().enumerate() {
                    *acc = S::add_f32(*acc, term::<S, T>(&group, x, (first + r) * x.stride + place, units));
                }
            }
            for (lanes, acc) in lanes.iter_mut().zip(acc) {
                S::store_f32(lanes.as_mut_ptr().add(lane), S::keep(acc, (segments.count - lane).min(S::W)));
            }
            lane += S::W;
        }
    }
}

/// Reads the blocks from `place` on, the weights of only the first `units` vectors.
#[inline(always)]
unsafe fn group<S: Isa, T: Format>(row: &PlanesRef<'_>, x: &Prepared, place: usize, units: usize) -> Group<S> {
    // SAFETY: as in `run`.
    unsafe {
        let zero = S::zero();
        let (mut first, mut last) = ([zero; 4], [zero; 4]);
        for u in 0..4 {
            if u < units {
                (first[u], last[u]) = weights::<S, T>(row, place + u * (S::W / 4));
            }
        }
        let none = S::zero_f32();
        let (dw, min, sub) = match T::SCALES {
            Scales::Half => (S::low_f16(S::load_u16(row.scales.as_ptr().add(place * 2))), none, (zero, zero)),
            Scales::HalfPair => {
                let pair = S::load(row.scales.as_ptr().add(place * 4));
                (S::low_f16(pair), S::high_f16(pair), (zero, zero))
            }
            Scales::SuperPair => {
                let (sc, mn) = S::u8_pair(S::load_u16(row.scales.as_ptr().add(place * 2)));
                let pair = S::gather(row.supers.as_ptr(), x.supers.as_ptr().add(place));
                (S::mul_f32(S::low_f16(pair), sc), S::mul_f32(S::high_f16(pair), mn), (zero, zero))
            }
            Scales::SuperHalves => {
                let sub = S::i8_pair(S::load_u16(row.scales.as_ptr().add(place * 2)));
                (S::low_f16(S::gather(row.supers.as_ptr(), x.supers.as_ptr().add(place))), none, sub)
            }
        };
        Group { first, last, dw, min, sub }
    }
}

/// The weights of W / 4 blocks from `place` on: 0 to 15, and 16 to 31.
#[inline(always)]
unsafe fn weights<S: Isa, T: Format>(row: &PlanesRef<'_>, place: usize) -> (S::I, S::I) {
    // SAFETY: as in `run`.
    unsafe {
        if T::BYTES {
            return S::load_halves(row.quants.as_ptr().add(place * 32));
        }
        let nibbles = S::load(row.quants.as_ptr().add(place * 16));
        let (low, high) = (S::low_nibbles(nibbles), S::high_nibbles(nibbles));
        match T::HIGH {
            0 => (low, high),
            1 => {
                let bits = S::spread::<1, 0>(row.high.as_ptr().add(place * 4));
                (S::or(low, S::high_bits::<1, 0>(bits)), S::or(high, S::high_bits::<1, 4>(bits)))
            }
            _ => {
                let from = row.high.as_ptr().add(place * 8);
                let low = S::or(low, S::high_bits::<2, 0>(S::spread::<2, 0>(from)));
                (low, S::or(high, S::high_bits::<2, 0>(S::spread::<2, 1>(from))))
            }
        }
    }
}

/// The terms of a group and the activation blocks from `at` on.
#[inline(always)]
unsafe fn term<S: Isa, T: Format>(w: &Group<S>, x: &Prepared, at: usize, units: usize) -> S::F {
    // SAFETY: as in `run`.
    unsafe {
        let (mut first, mut last) = ([S::zero(); 4], [S::zero(); 4]);
        for u in 0..4 {
            if u >= units {
                break;
            }
            let at = at + u * (S::W / 4);
            let (x_first, x_last) = (x.first.as_ptr().cast::<u8>(), x.last.as_ptr().cast::<u8>());
            let (x_first, x_last) = (S::load(x_first.add(at * 16)), S::load(x_last.add(at * 16)));
            if T::BYTES {
                first[u] = S::dot_signed(S::dot_signed(first[u], w.first[u], x_first), w.last[u], x_last);
            } else if T::SCALES == Scales::SuperHalves {
                first[u] = S::dot_unsigned(first[u], w.first[u], x_first);
                last[u] = S::dot_unsigned(last[u], w.last[u], x_last);
            } else {
                first[u] = S::dot_unsigned(S::dot_unsigned(first[u], w.first[u], x_first), w.last[u], x_last);
            }
        }
        let mut isum = S::block_sums(first);
        if T::SCALES == Scales::SuperHalves {
            let first = S::mul(w.sub.0, S::sub(isum, S::load(x.bias.as_ptr().add(at).cast())));
            isum = S::add(
                first,
                S::mul(w.sub.1, S::sub(S::block_sums(last), S::load(x.bias_last.as_ptr().add(at).cast()))),
            );
        } else if T::OFFSET || T::BYTES && S::SIGNED_BIAS != 0 {
            isum = S::sub(isum, S::load(x.bias.as_ptr().add(at).cast()));
        }
        let d = S::load_f32(x.d.as_ptr().add(at));
        let term = S::mul_f32(S::mul_f32(w.dw, d), S::to_f32(isum));
        if matches!(T::SCALES, Scales::HalfPair | Scales::SuperPair) {
            let offset = S::mul_f32(S::mul_f32(w.min, d), S::load_f32(x.sum.as_ptr().add(at)));
            return if T::SCALES == Scales::HalfPair { S::add_f32(term, offset) } else { S::sub_f32(term, offset) };
        }
        term
    }
}
