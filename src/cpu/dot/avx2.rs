//! AVX2 with F16C: groups of eight blocks, two a vector.

use core::arch::x86_64::*;

use super::isa::Isa;
use super::{Path, Prepared, kernel_table};
use crate::cpu::matrix::PackedMatrix;

pub(super) const PATH: Path =
    Path { name: "avx2", available: || is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c"), kernel };

#[target_feature(enable = "avx2,f16c")]
unsafe fn run_quantised<T: super::quantised::Format>(w: &PackedMatrix, x: &Prepared, first: usize, out: &mut [f32]) {
    // SAFETY: the caller's promises are those of `run`.
    unsafe { super::quantised::run::<Avx2, T>(w, x, first, out) }
}

#[target_feature(enable = "avx2,f16c")]
unsafe fn run_float<T: super::float::Float>(w: &PackedMatrix, x: &Prepared, first: usize, out: &mut [f32]) {
    // SAFETY: the caller's promises are those of `run`.
    unsafe { super::float::run::<Avx2, T>(w, x, first, out) }
}

kernel_table!();

#[derive(Clone, Copy)]
struct Avx2;

/// Transposes 4x4 in each 128-bit lane.
#[inline(always)]
unsafe fn transpose(v: [__m256; 4]) -> [__m256; 4] {
    // SAFETY: the caller's promise of AVX2.
    unsafe {
        let (a, b) = (_mm256_unpacklo_ps(v[0], v[1]), _mm256_unpackhi_ps(v[0], v[1]));
        let (c, d) = (_mm256_unpacklo_ps(v[2], v[3]), _mm256_unpackhi_ps(v[2], v[3]));
        [
            _mm256_shuffle_ps::<0b01_00_01_00>(a, c),
            _mm256_shuffle_ps::<0b11_10_11_10>(a, c),
            _mm256_shuffle_ps::<0b01_00_01_00>(b, d),
            _mm256_shuffle_ps::<0b11_10_11_10>(b, d),
        ]
    }
}

/// Four values of eight blocks, given how four of one are loaded.
#[inline(always)]
unsafe fn columns(from: *const u8, stride: usize, load: impl Fn(*const u8) -> __m128) -> [__m256; 4] {
    // SAFETY: the caller's promise of AVX2 and of readable blocks.
    unsafe {
        let mut v = [_mm256_setzero_ps(); 4];
        for (i, v) in v.iter_mut().enumerate() {
            *v = _mm256_set_m128(load(from.add((i + 4) * stride)), load(from.add(i * stride)));
        }
        transpose(v)
    }
}

/// The tree of adjacent pairs over 32 values; also used by AVX-512.
#[inline(always)]
pub(super) unsafe fn tree(lanes: *const f32) -> f32 {
    // SAFETY: the caller's promise of AVX2 and of 32 readable values.
    unsafe {
        let v = |i: usize| _mm256_loadu_ps(lanes.add(8 * i));
        // In each half, sums of four neighbours: of v0, v1, v2, v3.
        let fours = _mm256_hadd_ps(_mm256_hadd_ps(v(0), v(1)), _mm256_hadd_ps(v(2), v(3)));
        let eights = _mm_add_ps(_mm256_castps256_ps128(fours), _mm256_extractf128_ps::<1>(fours));
        let pairs = _mm_hadd_ps(eights, eights);
        _mm_cvtss_f32(_mm_add_ss(pairs, _mm_movehdup_ps(pairs)))
    }
}

#[allow(clippy::missing_safety_doc)]
impl Isa for Avx2 {
    type I = __m256i;
    type F = __m256;
    const W: usize = 8;
    const SIGNED_BIAS: i32 = 0;

    #[inline(always)]
    unsafe fn zero() -> __m256i {
        unsafe { _mm256_setzero_si256() }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> __m256i {
        unsafe { _mm256_loadu_si256(from.cast()) }
    }

    #[inline(always)]
    unsafe fn load_u16(from: *const u8) -> __m256i {
        unsafe { _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast())) }
    }

    #[inline(always)]
    unsafe fn load_halves(from: *const u8) -> (__m256i, __m256i) {
        unsafe {
            let (a, b) = (Self::load(from), Self::load(from.add(32)));
            (_mm256_permute2x128_si256::<0x20>(a, b), _mm256_permute2x128_si256::<0x31>(a, b))
        }
    }

    #[inline(always)]
    unsafe fn spread<const STRIDE: usize, const OFFSET: usize>(from: *const u8) -> __m256i {
        unsafe {
            let words: *const i32 = from.cast();
            let (a, b) = (words.add(OFFSET).read_unaligned(), words.add(STRIDE + OFFSET).read_unaligned());
            _mm256_set_m128i(_mm_set1_epi32(b), _mm_set1_epi32(a))
        }
    }

    #[inline(always)]
    unsafe fn gather(base: *const u8, offsets: *const u32) -> __m256i {
        unsafe { _mm256_i32gather_epi32::<1>(base.cast(), Self::load(offsets.cast())) }
    }

    #[inline(always)]
    unsafe fn low_nibbles(v: __m256i) -> __m256i {
        unsafe { _mm256_and_si256(v, _mm256_set1_epi8(15)) }
    }

    #[inline(always)]
    unsafe fn high_nibbles(v: __m256i) -> __m256i {
        unsafe { Self::low_nibbles(_mm256_srli_epi16::<4>(v)) }
    }

    #[inline(always)]
    unsafe fn high_bits<const STEP: u32, const BASE: u32>(v: __m256i) -> __m256i {
        unsafe {
            let (b, s) = (BASE as i32, STEP as i32);
            let shifts = _mm256_broadcastsi128_si256(_mm_setr_epi32(b, b + s, b + 2 * s, b + 3 * s));
            let bits = _mm256_and_si256(_mm256_srlv_epi32(v, shifts), _mm256_set1_epi8((1 << STEP) - 1));
            _mm256_slli_epi32::<4>(bits)
        }
    }

    #[inline(always)]
    unsafe fn or(a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_or_si256(a, b) }
    }

    #[inline(always)]
    unsafe fn dot_unsigned(acc: __m256i, w: __m256i, x: __m256i) -> __m256i {
        // Two products of at most 63 * 127 fit an i16.
        unsafe {
            let pairs = _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), _mm256_set1_epi16(1));
            _mm256_add_epi32(acc, pairs)
        }
    }

    #[inline(always)]
    unsafe fn dot_signed(acc: __m256i, w: __m256i, x: __m256i) -> __m256i {
        // |w| is at most 128, so two products fit an i16.
        unsafe { Self::dot_unsigned(acc, _mm256_abs_epi8(w), _mm256_sign_epi8(x, w)) }
    }

    #[inline(always)]
    unsafe fn block_sums(v: [__m256i; 4]) -> __m256i {
        unsafe {
            let sums = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
            // Half 0 holds the blocks 0, 2, 4, 6, half 1 the others.
            _mm256_permutevar8x32_epi32(sums, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7))
        }
    }

    #[inline(always)]
    unsafe fn sub(a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_sub_epi32(a, b) }
    }

    #[inline(always)]
    unsafe fn add(a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_add_epi32(a, b) }
    }

    #[inline(always)]
    unsafe fn mul(a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_mullo_epi32(a, b) }
    }

    #[inline(always)]
    unsafe fn i8_pair(v: __m256i) -> (__m256i, __m256i) {
        unsafe {
            let byte = |v| _mm256_srai_epi32::<24>(v);
            (byte(_mm256_slli_epi32::<24>(v)), byte(_mm256_slli_epi32::<16>(v)))
        }
    }

    #[inline(always)]
    unsafe fn u8_pair(v: __m256i) -> (__m256, __m256) {
        unsafe {
            let byte = |v| _mm256_cvtepi32_ps(_mm256_and_si256(v, _mm256_set1_epi32(255)));
            (byte(v), byte(_mm256_srli_epi32::<8>(v)))
        }
    }

    #[inline(always)]
    unsafe fn to_f32(v: __m256i) -> __m256 {
        unsafe { _mm256_cvtepi32_ps(v) }
    }

    #[inline(always)]
    unsafe fn low_f16(v: __m256i) -> __m256 {
        unsafe { Self::high_f16(_mm256_slli_epi32::<16>(v)) }
    }

    #[inline(always)]
    unsafe fn high_f16(v: __m256i) -> __m256 {
        unsafe {
            let words = _mm256_srli_epi32::<16>(v);
            let packed = _mm256_permute4x64_epi64::<0b10_00>(_mm256_packus_epi32(words, words));
            _mm256_cvtph_ps(_mm256_castsi256_si128(packed))
        }
    }

    #[inline(always)]
    unsafe fn zero_f32() -> __m256 {
        unsafe { _mm256_setzero_ps() }
    }

    #[inline(always)]
    unsafe fn load_f32(from: *const f32) -> __m256 {
        unsafe { _mm256_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn store_f32(to: *mut f32, v: __m256) {
        unsafe { _mm256_storeu_ps(to, v) }
    }

    #[inline(always)]
    unsafe fn and_f32(a: __m256, b: __m256i) -> __m256 {
        unsafe { _mm256_and_ps(a, _mm256_castsi256_ps(b)) }
    }

    #[inline(always)]
    unsafe fn add_f32(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_add_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn sub_f32(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_sub_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn mul_f32(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_mul_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn tree(lanes: *const f32) -> f32 {
        unsafe { tree(lanes) }
    }

    #[inline(always)]
    unsafe fn columns_f32(from: *const u8, stride: usize) -> [__m256; 4] {
        unsafe { columns(from, stride, |from| _mm_loadu_ps(from.cast())) }
    }

    #[inline(always)]
    unsafe fn columns_f16(from: *const u8, stride: usize) -> [__m256; 4] {
        unsafe { columns(from, stride, |from| _mm_cvtph_ps(_mm_loadl_epi64(from.cast()))) }
    }

    #[inline(always)]
    unsafe fn columns_bf16(from: *const u8, stride: usize) -> [__m256; 4] {
        unsafe {
            columns(from, stride, |from| {
                let words = _mm_loadl_epi64(from.cast());
                _mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), words))
            })
        }
    }
}
