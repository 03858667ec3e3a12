//! Rounding to fewer bits, as integer operations on a float's bits.

/// `x` rounded to `n` significant bits (1 to 23), ties to even. Finite values below 2^127 never overflow; an infinity
/// stays one.
#[inline(always)]
pub fn round_sig(x: f32, n: u32) -> f32 {
    let b = x.to_bits();
    let half = (1 << (23 - n)) - 1 + ((b >> (24 - n)) & 1);
    f32::from_bits(b.wrapping_add(half) & (u32::MAX << (24 - n)))
}

/// `x`, or +0 where its magnitude is below 2^-100: a device may flush what follows from smaller ones.
#[inline(always)]
pub fn flush_small(x: f32) -> f32 {
    if x.to_bits() & 0x7fff_ffff < 0x0d80_0000 { 0.0 } else { x }
}

/// Whether `x` is neither an infinity nor NaN, by its exponent bits.
#[inline(always)]
pub fn is_finite_bits(x: f32) -> bool {
    x.to_bits() & 0x7f80_0000 != 0x7f80_0000
}

/// The bits of `x` as f16: clamped to ±65504, +0 for magnitudes below 2^-14, rounded to nearest even. NaN gives 0x7e00.
#[inline]
pub fn to_f16(x: f32) -> u16 {
    let b = x.to_bits();
    let sign = (b >> 16) & 0x8000;
    let magnitude = (b & 0x7fff_ffff).min(0x477f_e000);
    let rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
    let half = sign | ((rounded - 0x3800_0000.min(rounded)) >> 13);
    let bits = match b & 0x7fff_ffff {
        0x7f80_0001.. => 0x7e00,
        0..0x3880_0000 => 0,
        _ => half,
    };
    bits as u16
}

/// The value of f16 bits; denormals, infinities and NaN included.
#[inline]
pub fn from_f16(h: u16) -> f32 {
    let sign = (u32::from(h) & 0x8000) << 16;
    let magnitude = u32::from(h) & 0x7fff;
    let value = match magnitude {
        0x7c00.. => (magnitude << 13) + 0x7000_0000,
        0x0400.. => (magnitude << 13) + 0x3800_0000,
        _ => (magnitude as f32 * f32::from_bits(0x3380_0000)).to_bits(),
    };
    f32::from_bits(sign | value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_sig_is_nearest_even() {
        for n in [11, 12, 16] {
            let step = f32::powi(2.0, 1 - n as i32);
            assert_eq!(round_sig(1.0 + 0.5 * step, n), 1.0, "a tie goes to the even neighbour below");
            assert_eq!(round_sig(1.0 + 1.5 * step, n), 1.0 + 2.0 * step, "and above");
            assert_eq!(round_sig(-(1.0 + 0.75 * step), n), -(1.0 + step));
            assert_eq!(round_sig(2.0 - 0.25 * step, n), 2.0, "a carry reaches the exponent");
            assert_eq!(round_sig(0.0, n).to_bits(), 0);
            assert_eq!(round_sig(f32::INFINITY, n), f32::INFINITY);
            for x in (0..100_000u32).map(|i| f32::from_bits(i.wrapping_mul(42_361) | 0x0080_0000)) {
                if x.abs() < 1e38 {
                    let r = round_sig(x, n);
                    assert_eq!(r.to_bits() & ((1 << (24 - n)) - 1), 0);
                    assert!((f64::from(r) - f64::from(x)).abs() <= f64::from(x.abs()) * f64::powi(2.0, -(n as i32)));
                }
            }
        }
    }

    #[test]
    fn f16_agrees_with_half() {
        for bits in 0..=u16::MAX {
            let want = half::f16::from_bits(bits).to_f32();
            let got = from_f16(bits);
            assert!(got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan()), "{bits:#x}");
        }
        for i in 0..1_000_000u32 {
            let x = f32::from_bits(i.wrapping_mul(4_295));
            let want = match x.abs() {
                m if m < 6.103_515_6e-5 => half::f16::ZERO,
                _ => half::f16::from_f32(x.clamp(-65504.0, 65504.0)),
            };
            assert!(x.is_nan() || to_f16(x) == want.to_bits(), "{x:e}");
        }
    }

    #[test]
    fn f16_edges() {
        let cases: [(f32, u16); 9] = [
            (0.0, 0),
            (-0.0, 0),
            (f32::from_bits(0x387f_ffff), 0),
            (6.103_515_6e-5, 0x0400),
            (65504.0, 0x7bff),
            (65519.0, 0x7bff),
            (1e30, 0x7bff),
            (f32::NEG_INFINITY, 0xfbff),
            (f32::NAN, 0x7e00),
        ];
        for (x, want) in cases {
            assert_eq!(to_f16(x), want, "{x:e}");
        }
        assert!(is_finite_bits(f32::MAX) && !is_finite_bits(f32::NAN) && !is_finite_bits(f32::NEG_INFINITY));
    }
}
