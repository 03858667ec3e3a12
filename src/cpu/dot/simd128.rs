//! WebAssembly SIMD: groups of four blocks, one a vector. Present where the crate is built with `simd128`.

#![allow(unused_unsafe, reason = "which operations are safe differs between architectures")]

use core::arch::wasm32::*;

use super::isa::Isa;
use super::{Path, Prepared, kernel_table};
use crate::cpu::matrix::PackedMatrix;

pub(super) const PATH: Path = Path { name: "simd128", available: || true, kernel };

unsafe fn run_quantised<T: super::quantised::Format>(w: &PackedMatrix, x: &Prepared, first: usize, out: &mut [f32]) {
    // SAFETY: the caller's promises are those of `run`.
    unsafe { super::quantised::run::<Simd128, T>(w, x, first, out) }
}

unsafe fn run_float<T: super::float::Float>(w: &PackedMatrix, x: &Prepared, first: usize, out: &mut [f32]) {
    // SAFETY: the caller's promises are those of `run`.
    unsafe { super::float::run::<Simd128, T>(w, x, first, out) }
}

kernel_table!();

#[derive(Clone, Copy)]
struct Simd128;

#[inline(always)]
fn transpose(v: [v128; 4]) -> [v128; 4] {
    let (a, b) = (i32x4_shuffle::<0, 4, 1, 5>(v[0], v[2]), i32x4_shuffle::<2, 6, 3, 7>(v[0], v[2]));
    let (c, d) = (i32x4_shuffle::<0, 4, 1, 5>(v[1], v[3]), i32x4_shuffle::<2, 6, 3, 7>(v[1], v[3]));
    [
        i32x4_shuffle::<0, 4, 1, 5>(a, c),
        i32x4_shuffle::<2, 6, 3, 7>(a, c),
        i32x4_shuffle::<0, 4, 1, 5>(b, d),
        i32x4_shuffle::<2, 6, 3, 7>(b, d),
    ]
}

/// Sums of neighbours: of `a` in the low half, of `b` in the high half.
#[inline(always)]
fn pairs(a: v128, b: v128) -> v128 {
    f32x4_add(i32x4_shuffle::<0, 2, 4, 6>(a, b), i32x4_shuffle::<1, 3, 5, 7>(a, b))
}

#[allow(clippy::missing_safety_doc)]
impl Isa for Simd128 {
    type I = v128;
    type F = v128;
    const W: usize = 4;
    const SIGNED_BIAS: i32 = 0;

    #[inline(always)]
    unsafe fn zero() -> v128 {
        // SAFETY: the trait's promises.
        unsafe { i32x4_splat(0) }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> v128 {
        // SAFETY: the trait's promises.
        unsafe { v128_load(from.cast()) }
    }

    #[inline(always)]
    unsafe fn load_u16(from: *const u8) -> v128 {
        // SAFETY: the trait's promises.
        unsafe { u32x4_load_extend_u16x4(from.cast()) }
    }

    #[inline(always)]
    unsafe fn load_halves(from: *const u8) -> (v128, v128) {
        // SAFETY: the trait's promises.
        unsafe { (Self::load(from), Self::load(from.add(16))) }
    }

    #[inline(always)]
    unsafe fn spread<const STRIDE: usize, const OFFSET: usize>(from: *const u8) -> v128 {
        // SAFETY: the trait's promises.
        unsafe { v128_load32_splat(from.cast::<u32>().add(OFFSET)) }
    }

    #[inline(always)]
    unsafe fn gather(base: *const u8, offsets: *const u32) -> v128 {
        // SAFETY: the trait's promises.
        unsafe {
            let word = |i: usize| base.add(offsets.add(i).read() as usize).cast::<u32>().read_unaligned();
            u32x4(word(0), word(1), word(2), word(3))
        }
    }

    #[inline(always)]
    unsafe fn low_nibbles(v: v128) -> v128 {
        // SAFETY: the trait's promises.
        unsafe { v128_and(v, u8x16_splat(15)) }
    }

    #[inline(always)]
    unsafe fn high_nibbles(v: v128) -> v128 {
        // SAFETY: the trait's promises.
        unsafe { u8x16_shr(v, 4) }
    }

    #[inline(always)]
    unsafe fn high_bits<const STEP: u32, const BASE: u32>(v: v128) -> v128 {
        // SAFETY: the trait's promises.
        unsafe {
            // No shift by lane: multiplied so that the wanted bits of each byte become its top bits, then moved to bit 4.
            let up = |j: u32| 1u32 << (8 - STEP - BASE - STEP * j);
            let top = i32x4_mul(v, u32x4(up(0), up(1), up(2), up(3)));
            let mask = u8x16_splat((1 << STEP) - 1);
            u8x16_shl(v128_and(u8x16_shr(top, 8 - STEP), mask), 4)
        }
    }

    #[inline(always)]
    unsafe fn or(a: v128, b: v128) -> v128 {
        // SAFETY: the trait's promises.
        unsafe { v128_or(a, b) }
    }

    #[inline(always)]
    unsafe fn dot_unsigned(acc: v128, w: v128, x: v128) -> v128 {
        // SAFETY: the trait's promises.
        unsafe { Self::dot_signed(acc, w, x) }
    }

    #[inline(always)]
    unsafe fn dot_signed(acc: v128, w: v128, x: v128) -> v128 {
        // SAFETY: the trait's promises.
        unsafe {
            let low = i32x4_dot_i16x8(i16x8_extend_low_i8x16(w), i16x8_extend_low_i8x16(x));
            let high = i32x4_dot_i16x8(i16x8_extend_high_i8x16(w), i16x8_extend_high_i8x16(x));
            i32x4_add(acc, i32x4_add(low, high))
        }
    }

    #[inline(always)]
    unsafe fn block_sums(v: [v128; 4]) -> v128 {
        // SAFETY: the trait's promises.
        unsafe {
            let [a, b, c, d] = transpose(v);
            i32x4_add(i32x4_add(a, b), i32x4_add(c, d))
        }
    }

    #[inline(always)]
    unsafe fn sub(a: v128, b: v128) -> v128 {
        // SAFETY: the trait's promises.
        unsafe { i32x4_sub(a, b) }
    }

    #[inline(always)]
    unsafe fn add(a: v128, b: v128) -> v128 {
        // SAFETY: the trait's promises.
        unsafe { i32x4_add(a, b) }
    }

    #[inline(always)]
    unsafe fn mul(a: v128, b: v128) -> v128 {
        // SAFETY: the trait's promises.
        unsafe { i32x4_mul(a, b) }
    }

    #[inline(always)]
    unsafe fn i8_pair(v: v128) -> (v128, v128) {
        // SAFETY: the trait's promises.
        unsafe { (i32x4_shr(i32x4_shl(v, 24), 24), i32x4_shr(i32x4_shl(v, 16), 24)) }
    }

    #[inline(always)]
    unsafe fn u8_pair(v: v128) -> (v128, v128) {
        // SAFETY: the trait's promises.
        unsafe {
            let byte = i32x4_splat(255);
            (f32x4_convert_i32x4(v128_and(v, byte)), f32x4_convert_i32x4(v128_and(u32x4_shr(v, 8), byte)))
        }
    }

    #[inline(always)]
    unsafe fn to_f32(v: v128) -> v128 {
        // SAFETY: the trait's promises.
        unsafe { f32x4_convert_i32x4(v) }
    }

    #[inline(always)]
    unsafe fn low_f16(v: v128) -> v128 {
        // SAFETY: the trait's promises.
        unsafe { Self::high_f16(i32x4_shl(v, 16)) }
    }

    #[inline(always)]
    unsafe fn high_f16(v: v128) -> v128 {
        // SAFETY: the trait's promises.
        unsafe {
            let magnitude = u32x4_shr(v128_and(v, u32x4_splat(0x7fff_0000)), 3);
            let value = f32x4_mul(magnitude, u32x4_splat(0x7780_0000));
            v128_or(value, v128_and(v, u32x4_splat(0x8000_0000)))
        }
    }

    #[inline(always)]
    unsafe fn zero_f32() -> v128 {
        // SAFETY: the trait's promises.
        unsafe { f32x4_splat(0.0) }
    }

    #[inline(always)]
    unsafe fn load_f32(from: *const f32) -> v128 {
        // SAFETY: the trait's promises.
        unsafe { v128_load(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store_f32(to: *mut f32, v: v128) {
        // SAFETY: the trait's promises.
        unsafe { v128_store(to.cast(), v) }
    }

    #[inline(always)]
    unsafe fn and_f32(a: v128, b: v128) -> v128 {
        // SAFETY: the trait's promises.
        unsafe { v128_and(a, b) }
    }

    #[inline(always)]
    unsafe fn add_f32(a: v128, b: v128) -> v128 {
        // SAFETY: the trait's promises.
        unsafe { f32x4_add(a, b) }
    }

    #[inline(always)]
    unsafe fn sub_f32(a: v128, b: v128) -> v128 {
        // SAFETY: the trait's promises.
        unsafe { f32x4_sub(a, b) }
    }

    #[inline(always)]
    unsafe fn mul_f32(a: v128, b: v128) -> v128 {
        // SAFETY: the trait's promises.
        unsafe { f32x4_mul(a, b) }
    }

    #[inline(always)]
    unsafe fn tree(lanes: *const f32) -> f32 {
        // SAFETY: the trait's promises.
        unsafe {
            let pair = |i: usize| pairs(Self::load_f32(lanes.add(4 * i)), Self::load_f32(lanes.add(4 * i + 4)));
            let fours = [pairs(pair(0), pair(2)), pairs(pair(4), pair(6))];
            let eights = pairs(fours[0], fours[1]);
            let sixteens = pairs(eights, eights);
            f32x4_extract_lane::<0>(pairs(sixteens, sixteens))
        }
    }

    #[inline(always)]
    unsafe fn columns_f32(from: *const u8, stride: usize) -> [v128; 4] {
        // SAFETY: the trait's promises.
        unsafe {
            let block = |i: usize| Self::load(from.add(i * stride));
            transpose([block(0), block(1), block(2), block(3)])
        }
    }

    #[inline(always)]
    unsafe fn columns_f16(from: *const u8, stride: usize) -> [v128; 4] {
        // SAFETY: the trait's promises.
        unsafe {
            let block = |i: usize| Self::low_f16(Self::load_u16(from.add(i * stride)));
            transpose([block(0), block(1), block(2), block(3)])
        }
    }

    #[inline(always)]
    unsafe fn columns_bf16(from: *const u8, stride: usize) -> [v128; 4] {
        // SAFETY: the trait's promises.
        unsafe {
            let block = |i: usize| i32x4_shl(Self::load_u16(from.add(i * stride)), 16);
            transpose([block(0), block(1), block(2), block(3)])
        }
    }
}
