//! NEON: groups of four blocks, one a vector.

#![allow(unused_unsafe, reason = "which operations are safe differs between architectures")]

use core::arch::aarch64::*;

use super::isa::Isa;
use super::{Path, Prepared, kernel_table};
use crate::cpu::matrix::PackedMatrix;

pub(super) const PATH: Path =
    Path { name: "neon", available: || std::arch::is_aarch64_feature_detected!("neon"), kernel };

#[target_feature(enable = "neon")]
unsafe fn run_quantised<T: super::quantised::Format>(w: &PackedMatrix, x: &Prepared, first: usize, out: &mut [f32]) {
    // SAFETY: the caller's promises are those of `run`.
    unsafe { super::quantised::run::<Neon, T>(w, x, first, out) }
}

#[target_feature(enable = "neon")]
unsafe fn run_float<T: super::float::Float>(w: &PackedMatrix, x: &Prepared, first: usize, out: &mut [f32]) {
    // SAFETY: the caller's promises are those of `run`.
    unsafe { super::float::run::<Neon, T>(w, x, first, out) }
}

kernel_table!();

#[derive(Clone, Copy)]
struct Neon;

#[inline(always)]
unsafe fn transpose(v: [uint32x4_t; 4]) -> [float32x4_t; 4] {
    // SAFETY: the caller's promise of NEON.
    unsafe {
        let (a, b) = (vzip1q_u32(v[0], v[2]), vzip2q_u32(v[0], v[2]));
        let (c, d) = (vzip1q_u32(v[1], v[3]), vzip2q_u32(v[1], v[3]));
        [
            vreinterpretq_f32_u32(vzip1q_u32(a, c)),
            vreinterpretq_f32_u32(vzip2q_u32(a, c)),
            vreinterpretq_f32_u32(vzip1q_u32(b, d)),
            vreinterpretq_f32_u32(vzip2q_u32(b, d)),
        ]
    }
}

#[allow(clippy::missing_safety_doc)]
impl Isa for Neon {
    type I = uint32x4_t;
    type F = float32x4_t;
    const W: usize = 4;
    const SIGNED_BIAS: i32 = 0;

    #[inline(always)]
    unsafe fn zero() -> uint32x4_t {
        // SAFETY: the trait's promises.
        unsafe { vdupq_n_u32(0) }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> uint32x4_t {
        // SAFETY: the trait's promises.
        unsafe { vreinterpretq_u32_u8(vld1q_u8(from)) }
    }

    #[inline(always)]
    unsafe fn load_u16(from: *const u8) -> uint32x4_t {
        // SAFETY: the trait's promises.
        unsafe { vmovl_u16(vreinterpret_u16_u8(vld1_u8(from))) }
    }

    #[inline(always)]
    unsafe fn load_halves(from: *const u8) -> (uint32x4_t, uint32x4_t) {
        // SAFETY: the trait's promises.
        unsafe { (Self::load(from), Self::load(from.add(16))) }
    }

    #[inline(always)]
    unsafe fn spread<const STRIDE: usize, const OFFSET: usize>(from: *const u8) -> uint32x4_t {
        // SAFETY: the trait's promises.
        unsafe { vdupq_n_u32(from.cast::<u32>().add(OFFSET).read_unaligned()) }
    }

    #[inline(always)]
    unsafe fn gather(base: *const u8, offsets: *const u32) -> uint32x4_t {
        // SAFETY: the trait's promises.
        unsafe {
            let mut words = [0u32; 4];
            for (i, word) in words.iter_mut().enumerate() {
                *word = base.add(offsets.add(i).read() as usize).cast::<u32>().read_unaligned();
            }
            vld1q_u32(words.as_ptr())
        }
    }

    #[inline(always)]
    unsafe fn low_nibbles(v: uint32x4_t) -> uint32x4_t {
        // SAFETY: the trait's promises.
        unsafe { vandq_u32(v, vdupq_n_u32(0x0f0f_0f0f)) }
    }

    #[inline(always)]
    unsafe fn high_nibbles(v: uint32x4_t) -> uint32x4_t {
        // SAFETY: the trait's promises.
        unsafe { Self::low_nibbles(vshrq_n_u32::<4>(v)) }
    }

    #[inline(always)]
    unsafe fn high_bits<const STEP: u32, const BASE: u32>(v: uint32x4_t) -> uint32x4_t {
        // SAFETY: the trait's promises.
        unsafe {
            let (b, s) = (-(BASE as i32), -(STEP as i32));
            let shifts = [b, b + s, b + 2 * s, b + 3 * s];
            let mask = vdupq_n_u32(if STEP == 1 { 0x0101_0101 } else { 0x0303_0303 });
            vshlq_n_u32::<4>(vandq_u32(vshlq_u32(v, vld1q_s32(shifts.as_ptr())), mask))
        }
    }

    #[inline(always)]
    unsafe fn or(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        // SAFETY: the trait's promises.
        unsafe { vorrq_u32(a, b) }
    }

    #[inline(always)]
    unsafe fn dot_unsigned(acc: uint32x4_t, w: uint32x4_t, x: uint32x4_t) -> uint32x4_t {
        // SAFETY: the trait's promises.
        unsafe { Self::dot_signed(acc, w, x) }
    }

    #[inline(always)]
    unsafe fn dot_signed(acc: uint32x4_t, w: uint32x4_t, x: uint32x4_t) -> uint32x4_t {
        // SAFETY: the trait's promises.
        unsafe {
            let (w, x) = (vreinterpretq_s8_u32(w), vreinterpretq_s8_u32(x));
            let acc = vpadalq_s16(vreinterpretq_s32_u32(acc), vmull_s8(vget_low_s8(w), vget_low_s8(x)));
            vreinterpretq_u32_s32(vpadalq_s16(acc, vmull_high_s8(w, x)))
        }
    }

    #[inline(always)]
    unsafe fn block_sums(v: [uint32x4_t; 4]) -> uint32x4_t {
        // SAFETY: the trait's promises.
        unsafe { vpaddq_u32(vpaddq_u32(v[0], v[1]), vpaddq_u32(v[2], v[3])) }
    }

    #[inline(always)]
    unsafe fn sub(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        // SAFETY: the trait's promises.
        unsafe { vsubq_u32(a, b) }
    }

    #[inline(always)]
    unsafe fn add(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        // SAFETY: the trait's promises.
        unsafe { vaddq_u32(a, b) }
    }

    #[inline(always)]
    unsafe fn mul(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        // SAFETY: the trait's promises.
        unsafe { vmulq_u32(a, b) }
    }

    #[inline(always)]
    unsafe fn i8_pair(v: uint32x4_t) -> (uint32x4_t, uint32x4_t) {
        // SAFETY: the trait's promises.
        unsafe {
            let low = vshrq_n_s32::<24>(vreinterpretq_s32_u32(vshlq_n_u32::<24>(v)));
            let high = vshrq_n_s32::<24>(vreinterpretq_s32_u32(vshlq_n_u32::<16>(v)));
            (vreinterpretq_u32_s32(low), vreinterpretq_u32_s32(high))
        }
    }

    #[inline(always)]
    unsafe fn u8_pair(v: uint32x4_t) -> (float32x4_t, float32x4_t) {
        // SAFETY: the trait's promises.
        unsafe {
            let byte = vdupq_n_u32(255);
            (vcvtq_f32_u32(vandq_u32(v, byte)), vcvtq_f32_u32(vandq_u32(vshrq_n_u32::<8>(v), byte)))
        }
    }

    #[inline(always)]
    unsafe fn to_f32(v: uint32x4_t) -> float32x4_t {
        // SAFETY: the trait's promises.
        unsafe { vcvtq_f32_s32(vreinterpretq_s32_u32(v)) }
    }

    #[inline(always)]
    unsafe fn low_f16(v: uint32x4_t) -> float32x4_t {
        // SAFETY: the trait's promises.
        unsafe { Self::high_f16(vshlq_n_u32::<16>(v)) }
    }

    #[inline(always)]
    unsafe fn high_f16(v: uint32x4_t) -> float32x4_t {
        // SAFETY: the trait's promises.
        unsafe {
            let magnitude = vshrq_n_u32::<3>(vandq_u32(v, vdupq_n_u32(0x7fff_0000)));
            let value = vmulq_f32(vreinterpretq_f32_u32(magnitude), vdupq_n_f32(f32::from_bits(0x7780_0000)));
            let sign = vandq_u32(v, vdupq_n_u32(0x8000_0000));
            vreinterpretq_f32_u32(vorrq_u32(vreinterpretq_u32_f32(value), sign))
        }
    }

    #[inline(always)]
    unsafe fn zero_f32() -> float32x4_t {
        // SAFETY: the trait's promises.
        unsafe { vdupq_n_f32(0.0) }
    }

    #[inline(always)]
    unsafe fn load_f32(from: *const f32) -> float32x4_t {
        // SAFETY: the trait's promises.
        unsafe { vld1q_f32(from) }
    }

    #[inline(always)]
    unsafe fn store_f32(to: *mut f32, v: float32x4_t) {
        // SAFETY: the trait's promises.
        unsafe { vst1q_f32(to, v) }
    }

    #[inline(always)]
    unsafe fn and_f32(a: float32x4_t, b: uint32x4_t) -> float32x4_t {
        // SAFETY: the trait's promises.
        unsafe { vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(a), b)) }
    }

    #[inline(always)]
    unsafe fn add_f32(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        // SAFETY: the trait's promises.
        unsafe { vaddq_f32(a, b) }
    }

    #[inline(always)]
    unsafe fn sub_f32(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        // SAFETY: the trait's promises.
        unsafe { vsubq_f32(a, b) }
    }

    #[inline(always)]
    unsafe fn mul_f32(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        // SAFETY: the trait's promises.
        unsafe { vmulq_f32(a, b) }
    }

    #[inline(always)]
    unsafe fn tree(lanes: *const f32) -> f32 {
        // SAFETY: the trait's promises.
        unsafe {
            let mut v = [vdupq_n_f32(0.0); 8];
            for (i, v) in v.iter_mut().enumerate() {
                *v = vld1q_f32(lanes.add(4 * i));
            }
            let pairs = |a: usize| vpaddq_f32(v[a], v[a + 1]);
            let fours = [vpaddq_f32(pairs(0), pairs(2)), vpaddq_f32(pairs(4), pairs(6))];
            let eights = vpaddq_f32(fours[0], fours[1]);
            let sixteens = vpaddq_f32(eights, eights);
            vgetq_lane_f32::<0>(vpaddq_f32(sixteens, sixteens))
        }
    }

    #[inline(always)]
    unsafe fn columns_f32(from: *const u8, stride: usize) -> [float32x4_t; 4] {
        // SAFETY: the trait's promises.
        unsafe {
            let mut v = [vdupq_n_u32(0); 4];
            for (i, v) in v.iter_mut().enumerate() {
                *v = Self::load(from.add(i * stride));
            }
            transpose(v)
        }
    }

    #[inline(always)]
    unsafe fn columns_f16(from: *const u8, stride: usize) -> [float32x4_t; 4] {
        // SAFETY: the trait's promises.
        unsafe {
            let mut v = [vdupq_n_u32(0); 4];
            for (i, v) in v.iter_mut().enumerate() {
                *v = vreinterpretq_u32_f32(Self::low_f16(Self::load_u16(from.add(i * stride))));
            }
            transpose(v)
        }
    }

    #[inline(always)]
    unsafe fn columns_bf16(from: *const u8, stride: usize) -> [float32x4_t; 4] {
        // SAFETY: the trait's promises.
        unsafe {
            let mut v = [vdupq_n_u32(0); 4];
            for (i, v) in v.iter_mut().enumerate() {
                *v = vshlq_n_u32::<16>(Self::load_u16(from.add(i * stride)));
            }
            transpose(v)
        }
    }
}
