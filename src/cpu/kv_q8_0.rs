//! Blocks of a cache of type q8_0: the twin of `shaders/shared/kv_q8_0.wgsl` and `kv_store_q8_0.wgsl` (docs/numerics.md, "Attention").

use crate::numerics::{exact_recip, from_f16, guard, round_sig};
use crate::plan::KV_BLOCK;

/// The scale of a block that holds a NaN.
const NAN_SCALE: u16 = 0x7e00;

/// Quantises whole blocks of `x` to `q`, as many integers, and the bits of their f16 scales `d`.
pub(crate) fn quantise(x: &[f32], q: &mut [i8], d: &mut [u16]) {
    let blocks = x.as_chunks::<KV_BLOCK>().0.iter().zip(q.as_chunks_mut::<KV_BLOCK>().0);
    for ((x, q), d) in blocks.zip(d) {
        (*q, *d) = quantise_block(x);
    }
}

fn quantise_block(x: &[f32; KV_BLOCK]) -> ([i8; KV_BLOCK], u16) {
    const LARGEST: f32 = 65504.0;
    // Magnitudes compare as their bits, NaN above all.
    let amax = x.iter().fold(0, |most, v| most.max(v.to_bits() & 0x7fff_ffff));
    if amax > f32::INFINITY.to_bits() {
        return ([0; KV_BLOCK], NAN_SCALE);
    }
    let scale = scale_bits(f32::from_bits(amax.min(LARGEST.to_bits())));
    if scale == 0 {
        return ([0; KV_BLOCK], 0);
    }
    let r = exact_recip(from_f16(scale));
    let integer = |x: f32| (x.clamp(-LARGEST, LARGEST) * r).round_ties_even().clamp(-127.0, 127.0) as i8;
    (x.map(integer), scale)
}

/// `amax / 127` as f16 bits, ties to even; unlike those of `to_f16`, magnitudes below 2^-14 are kept. `amax` is at most 65504.
fn scale_bits(amax: f32) -> u16 {
    // Below 2^-100, which a device might flush.
    if amax.to_bits() < 0x0d80_0000 {
        return 0;
    }
    let d = guard(amax * (1.0 / 127.0));
    let b = d.to_bits();
    let bits = match b < 0x3880_0000 {
        // Units of 2^-24.
        true => (d * 16_777_216.0).round_ties_even() as u32,
        false => (b + 0xfff + ((b >> 13) & 1) - 0x3800_0000) >> 13,
    };
    bits as u16
}

/// The values of integers of one block whose scale has the bits `d`, rounded to 11 bits.
#[inline]
pub(crate) fn decode<const N: usize>(q: &[i8; N], d: u16) -> [f32; N] {
    let scale = from_f16(d);
    if scale.is_nan() {
        return [f32::NAN; N];
    }
    // exact: 7 + 11 significant bits, before it is rounded
    q.map(|q| round_sig(f32::from(q) * scale, 11))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::micro::rng::Rng;

    #[test]
    fn scales_are_nearest_halves() {
        for i in 0..2_000_000u32 {
            let amax = f32::from_bits(i.wrapping_mul(2_147) & 0x7fff_ffff);
            if amax <= 65504.0 && amax >= 2f32.powi(-100) {
                assert_eq!(scale_bits(amax), half::f16::from_f32(amax * (1.0 / 127.0)).to_bits(), "{amax:e}");
            }
        }
        assert_eq!(scale_bits(2f32.powi(-101)), 0);
    }

    #[test]
    fn values_come_back_within_half_a_step() {
        let mut rng = Rng::new(1, "blocks");
        // From those whose scales are denormal halves up to the largest.
        for exponent in -16..=15 {
            for _ in 0..50 {
                let x: [f32; KV_BLOCK] = std::array::from_fn(|_| rng.uniform(-1.0, 1.0) * 2f32.powi(exponent));
                let (q, d) = quantise_block(&x);
                let amax = x.iter().fold(0.0f32, |amax, x| amax.max(x.abs()));
                // Half a step, the scale's own rounding (11 bits, or units of 2^-24), the value's.
                let scale = from_f16(d);
                let bound = f64::from(scale) * 0.5001 + f64::from(amax) * 2f64.powi(-10) + 64.0 * 2f64.powi(-24);
                for (x, v) in x.iter().zip(decode(&q, d)) {
                    assert!((f64::from(*x) - f64::from(v)).abs() <= bound, "{x} became {v}, scale {scale}");
                    assert_eq!(round_sig(v, 11), v);
                }
                assert!(exponent < -6 || q.iter().any(|q| q.unsigned_abs() >= 126));
            }
        }
    }

    #[test]
    fn edges() {
        let ramp: [f32; KV_BLOCK] = std::array::from_fn(|i| (i as f32 - 15.5) * 0.37);
        let with = |value: f32| {
            let mut x = ramp;
            x[7] = value;
            x
        };
        assert_eq!(quantise_block(&[-0.0; KV_BLOCK]), ([0; KV_BLOCK], 0));
        assert_eq!(quantise_block(&[1e-9; KV_BLOCK]), ([0; KV_BLOCK], 0), "the scale rounds to zero");
        for (value, wanted) in [(1e30, 127), (f32::INFINITY, 127), (f32::NEG_INFINITY, -127), (-65504.0, -127)] {
            let (q, d) = quantise_block(&with(value));
            assert_eq!((q[7], q[8], d), (wanted, 0, scale_bits(65504.0)), "{value}");
        }
        let (q, d) = quantise_block(&with(f32::NAN));
        assert_eq!((q, d), ([0; KV_BLOCK], NAN_SCALE));
        assert!(decode(&q, d).iter().all(|v| v.is_nan()), "it stays visible");
        // 127 times the scale is rounded to 11 bits.
        let (q, d) = quantise_block(&[1.0; KV_BLOCK]);
        assert_eq!((q[0], decode(&q, d)[0]), (127, round_sig(127.0 * from_f16(d), 11)));
    }
}
