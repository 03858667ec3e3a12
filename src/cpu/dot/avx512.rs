//! AVX-512 with VNNI: groups of sixteen blocks, four a vector.

use core::arch::x86_64::*;

use super::isa::Isa;
use super::{Path, Prepared, avx2, kernel_table};
use crate::cpu::matrix::PackedMatrix;

pub(super) const PATH: Path = Path {
    name: "avx512",
    available: || {
        is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vnni")
            && is_x86_feature_detected!("f16c")
    },
    kernel,
};

#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn run_quantised<T: super::quantised::Format>(w: &PackedMatrix, x: &Prepared, first: usize, out: &mut [f32]) {
    // SAFETY: the caller's promises are those of `run`.
    unsafe { super::quantised::run::<Avx512, T>(w, x, first, out) }
}

#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn run_float<T: super::float::Float>(w: &PackedMatrix, x: &Prepared, first: usize, out: &mut [f32]) {
    // SAFETY: the caller's promises are those of `run`.
    unsafe { super::float::run::<Avx512, T>(w, x, first, out) }
}

kernel_table!();

#[derive(Clone, Copy)]
struct Avx512;

/// Transposes 4x4 in each 128-bit lane.
#[inline(always)]
unsafe fn transpose(v: [__m512i; 4]) -> [__m512i; 4] {
    // SAFETY: the caller's promise of AVX-512.
    unsafe {
        let (a, b) = (_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
        let (c, d) = (_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
        [
            _mm512_unpacklo_epi64(a, c),
            _mm512_unpackhi_epi64(a, c),
            _mm512_unpacklo_epi64(b, d),
            _mm512_unpackhi_epi64(b, d),
        ]
    }
}

/// Four values of sixteen blocks, given how four of one are loaded.
#[inline(always)]
unsafe fn columns(from: *const u8, stride: usize, load: impl Fn(*const u8) -> __m128) -> [__m512; 4] {
    // SAFETY: the caller's promise of AVX-512 and of readable blocks.
    unsafe {
        let mut v = [_mm512_setzero_si512(); 4];
        for (i, v) in v.iter_mut().enumerate() {
            let four = |lane: usize| load(from.add((i + 4 * lane) * stride));
            let low = _mm256_set_m128(four(1), four(0));
            let high = _mm256_set_m128(four(3), four(2));
            *v = _mm512_castps_si512(_mm512_insertf32x8::<1>(_mm512_castps256_ps512(low), high));
        }
        let [a, b, c, d] = transpose(v);
        [_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), _mm512_castsi512_ps(c), _mm512_castsi512_ps(d)]
    }
}

#[allow(clippy::missing_safety_doc)]
impl Isa for Avx512 {
    type I = __m512i;
    type F = __m512;
    const W: usize = 16;
    const SIGNED_BIAS: i32 = 128;

    #[inline(always)]
    unsafe fn zero() -> __m512i {
        unsafe { _mm512_setzero_si512() }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> __m512i {
        unsafe { _mm512_loadu_si512(from.cast()) }
    }

    #[inline(always)]
    unsafe fn load_u16(from: *const u8) -> __m512i {
        unsafe { _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast())) }
    }

    #[inline(always)]
    unsafe fn load_halves(from: *const u8) -> (__m512i, __m512i) {
        unsafe {
            let (a, b) = (Self::load(from), Self::load(from.add(64)));
            (_mm512_shuffle_i64x2::<0b10_00_10_00>(a, b), _mm512_shuffle_i64x2::<0b11_01_11_01>(a, b))
        }
    }

    #[inline(always)]
    unsafe fn spread<const STRIDE: usize, const OFFSET: usize>(from: *const u8) -> __m512i {
        unsafe {
            let words = if STRIDE == 1 {
                _mm512_castsi128_si512(_mm_loadu_si128(from.cast()))
            } else {
                _mm512_castsi256_si512(_mm256_loadu_si256(from.cast()))
            };
            let at = |lane: usize| (lane * STRIDE + OFFSET) as i32;
            let (a, b, c, d) = (at(0), at(1), at(2), at(3));
            _mm512_permutexvar_epi32(_mm512_setr_epi32(a, a, a, a, b, b, b, b, c, c, c, c, d, d, d, d), words)
        }
    }

    #[inline(always)]
    unsafe fn gather(base: *const u8, offsets: *const u32) -> __m512i {
        unsafe { _mm512_i32gather_epi32::<1>(Self::load(offsets.cast()), base.cast()) }
    }

    #[inline(always)]
    unsafe fn low_nibbles(v: __m512i) -> __m512i {
        unsafe { _mm512_and_si512(v, _mm512_set1_epi8(15)) }
    }

    #[inline(always)]
    unsafe fn high_nibbles(v: __m512i) -> __m512i {
        unsafe { Self::low_nibbles(_mm512_srli_epi16::<4>(v)) }
    }

    #[inline(always)]
    unsafe fn high_bits<const STEP: u32, const BASE: u32>(v: __m512i) -> __m512i {
        unsafe {
            let (b, s) = (BASE as i32, STEP as i32);
            let shifts = _mm512_broadcast_i32x4(_mm_setr_epi32(b, b + s, b + 2 * s, b + 3 * s));
            let bits = _mm512_and_si512(_mm512_srlv_epi32(v, shifts), _mm512_set1_epi8((1 << STEP) - 1));
            _mm512_slli_epi32::<4>(bits)
        }
    }

    #[inline(always)]
    unsafe fn or(a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_or_si512(a, b) }
    }

    #[inline(always)]
    unsafe fn dot_unsigned(acc: __m512i, w: __m512i, x: __m512i) -> __m512i {
        unsafe { _mm512_dpbusd_epi32(acc, w, x) }
    }

    #[inline(always)]
    unsafe fn dot_signed(acc: __m512i, w: __m512i, x: __m512i) -> __m512i {
        // Flipping the sign bit adds 128.
        unsafe { _mm512_dpbusd_epi32(acc, _mm512_xor_si512(w, _mm512_set1_epi8(-128)), x) }
    }

    #[inline(always)]
    unsafe fn block_sums(v: [__m512i; 4]) -> __m512i {
        unsafe {
            let [a, b, c, d] = transpose(v);
            let sums = _mm512_add_epi32(_mm512_add_epi32(a, b), _mm512_add_epi32(c, d));
            // Lane i holds block i of each vector.
            let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
            _mm512_permutexvar_epi32(order, sums)
        }
    }

    #[inline(always)]
    unsafe fn sub(a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_sub_epi32(a, b) }
    }

    #[inline(always)]
    unsafe fn add(a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_add_epi32(a, b) }
    }

    #[inline(always)]
    unsafe fn mul(a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_mullo_epi32(a, b) }
    }

    #[inline(always)]
    unsafe fn i8_pair(v: __m512i) -> (__m512i, __m512i) {
        unsafe {
            let byte = |v| _mm512_srai_epi32::<24>(v);
            (byte(_mm512_slli_epi32::<24>(v)), byte(_mm512_slli_epi32::<16>(v)))
        }
    }

    #[inline(always)]
    unsafe fn u8_pair(v: __m512i) -> (__m512, __m512) {
        unsafe {
            let byte = |v| _mm512_cvtepi32_ps(_mm512_and_si512(v, _mm512_set1_epi32(255)));
            (byte(v), byte(_mm512_srli_epi32::<8>(v)))
        }
    }

    #[inline(always)]
    unsafe fn to_f32(v: __m512i) -> __m512 {
        unsafe { _mm512_cvtepi32_ps(v) }
    }

    #[inline(always)]
    unsafe fn low_f16(v: __m512i) -> __m512 {
        unsafe { _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v)) }
    }

    #[inline(always)]
    unsafe fn high_f16(v: __m512i) -> __m512 {
        unsafe { Self::low_f16(_mm512_srli_epi32::<16>(v)) }
    }

    #[inline(always)]
    unsafe fn zero_f32() -> __m512 {
        unsafe { _mm512_setzero_ps() }
    }

    #[inline(always)]
    unsafe fn load_f32(from: *const f32) -> __m512 {
        unsafe { _mm512_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn store_f32(to: *mut f32, v: __m512) {
        unsafe { _mm512_storeu_ps(to, v) }
    }

    #[inline(always)]
    unsafe fn and_f32(a: __m512, b: __m512i) -> __m512 {
        unsafe { _mm512_and_ps(a, _mm512_castsi512_ps(b)) }
    }

    #[inline(always)]
    unsafe fn add_f32(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn sub_f32(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_sub_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn mul_f32(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn tree(lanes: *const f32) -> f32 {
        unsafe { avx2::tree(lanes) }
    }

    #[inline(always)]
    unsafe fn columns_f32(from: *const u8, stride: usize) -> [__m512; 4] {
        unsafe { columns(from, stride, |from| _mm_loadu_ps(from.cast())) }
    }

    #[inline(always)]
    unsafe fn columns_f16(from: *const u8, stride: usize) -> [__m512; 4] {
        unsafe { columns(from, stride, |from| _mm_cvtph_ps(_mm_loadl_epi64(from.cast()))) }
    }

    #[inline(always)]
    unsafe fn columns_bf16(from: *const u8, stride: usize) -> [__m512; 4] {
        unsafe {
            columns(from, stride, |from| {
                let words = _mm_loadl_epi64(from.cast());
                _mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), words))
            })
        }
    }
}
