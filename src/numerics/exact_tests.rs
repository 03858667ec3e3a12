//! The functions against f64: bounds in ulp over their whole domain, edges, identities.

use super::*;

/// An ulp of the f32 nearest to `y`.
fn ulp(y: f64) -> f64 {
    let exponent = ((y as f32).to_bits() >> 23 & 0xff).max(1) as i32;
    f64::powi(2.0, exponent - 150)
}

/// The largest error in ulp over floats of `ranges`, about `count` a range, evenly spread over their bits.
fn worst(f: Function, truth: fn(f64) -> f64, ranges: &[(f32, f32)], count: u32) -> (f64, f32) {
    let mut worst = (0.0, 0.0);
    for &(lo, hi) in ranges {
        let (first, last) = (lo.to_bits().min(hi.to_bits()), lo.to_bits().max(hi.to_bits()));
        for bits in (first..=last).step_by(((last - first) / count).max(1) as usize) {
            let x = f32::from_bits(bits);
            let want = truth(f64::from(x));
            let error = if want.abs() < f64::from(f32::MIN_POSITIVE) {
                // below 2^-126 the result is zero, but rounding may still reach 2^-126
                if f(x) == 0.0 { 0.0 } else { (f64::from(f(x)) - want).abs() / ulp(want) }
            } else {
                (f64::from(f(x)) - want).abs() / ulp(want)
            };
            assert!(!error.is_nan(), "{x:e} gives {}", f(x));
            if error > worst.0 {
                worst = (error, x);
            }
        }
    }
    worst
}

const TINY: f32 = f32::MIN_POSITIVE;

fn logistic64(x: f64) -> f64 {
    if x < 0.0 { libm::exp(x) / (1.0 + libm::exp(x)) } else { 1.0 / (1.0 + libm::exp(-x)) }
}

fn check(name: &str, bound: f64, f: Function, truth: fn(f64) -> f64, ranges: &[(f32, f32)]) {
    let (error, x) = worst(f, truth, ranges, 2_500_000 / ranges.len() as u32);
    println!("{name}: {error:.3} ulp at {x:e}");
    assert!(error <= bound, "{name}: {error} ulp at {x:e}, expected at most {bound}");
}

#[test]
fn recip_and_rsqrt() {
    let normal = [(TINY, 8.5e37), (-TINY, -8.5e37), (1.0, 2.0)];
    check("recip", 0.55, exact_recip, |x| 1.0 / x, &normal);
    check("rsqrt", 0.55, exact_rsqrt, |x| 1.0 / x.sqrt(), &[(TINY, f32::MAX), (1.0, 4.0)]);
}

#[test]
fn exponentials() {
    check("exp2", 1.1, exact_exp2, libm::exp2, &[(TINY, 127.99999), (-TINY, -126.0), (-0.5, -126.0)]);
    check("exp", 1.0, exact_exp, libm::exp, &[(TINY, EXP_MAX), (-TINY, -87.33), (-0.1, -87.33)]);
}

#[test]
fn logarithm() {
    check("ln", 1.5, exact_ln, libm::log, &[(TINY, f32::MAX), (0.5, 2.0), (0.9, 1.1)]);
}

#[test]
fn sigmoid_and_silu() {
    let all = [(TINY, 110.0), (-TINY, -87.33), (-0.01, -87.33)];
    check("sigmoid", 1.0, exact_sigmoid, logistic64, &all);
    check("silu", 1.0, exact_silu, |x| x * logistic64(x), &all);
}

#[test]
fn gelus() {
    let all = [(TINY, 30.0), (-TINY, -0.01), (-0.01, -13.5)];
    check(
        "gelu_tanh",
        1.5,
        exact_gelu_tanh,
        |x| x * logistic64(2.0 * (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)),
        &all,
    );
    check("gelu_erf", 1.6, exact_gelu_erf, |x| x * 0.5 * libm::erfc(-x / std::f64::consts::SQRT_2), &all);
}

#[test]
fn softplus_and_tanh() {
    let all = [(TINY, 30.0), (-TINY, -0.01), (-0.01, -87.33)];
    check("softplus", 2.0, exact_softplus, |x| x.max(0.0) + libm::log1p(libm::exp(-x.abs())), &all);
    check("tanh", 2.0, exact_tanh, libm::tanh, &all);
}

type Function = fn(f32) -> f32;

const ALL: [(&str, Function); 11] = [
    ("recip", exact_recip),
    ("rsqrt", exact_rsqrt),
    ("exp2", exact_exp2),
    ("exp", exact_exp),
    ("ln", exact_ln),
    ("sigmoid", exact_sigmoid),
    ("silu", exact_silu),
    ("gelu_tanh", exact_gelu_tanh),
    ("gelu_erf", exact_gelu_erf),
    ("softplus", exact_softplus),
    ("tanh", exact_tanh),
];

#[test]
fn exact_values() {
    assert_eq!(exact_exp2(0.0).to_bits(), 1f32.to_bits());
    assert_eq!(exact_exp2(-0.0).to_bits(), 1f32.to_bits());
    assert_eq!(exact_exp(0.0), 1.0);
    assert_eq!(exact_ln(1.0).to_bits(), 0);
    assert_eq!(exact_sigmoid(0.0), 0.5);
    for n in -126..128 {
        let power = f32::powi(2.0, n);
        assert_eq!(exact_exp2(n as f32), power, "2^{n}");
        let recip = if n > 126 { 0.0 } else { f32::powi(2.0, -n) };
        assert_eq!(exact_recip(power), recip, "1 / 2^{n}");
        assert_eq!(exact_recip(-power), -recip);
        if n % 2 == 0 {
            assert_eq!(exact_rsqrt(power), f32::powi(2.0, -n / 2), "1 / sqrt(2^{n})");
        }
    }
}

#[test]
fn edges() {
    let inf = f32::INFINITY;
    let denormal = f32::from_bits(1);
    let cases: [(&str, Function, f32, f32); 40] = [
        ("recip", exact_recip, 0.0, f32::MAX),
        ("recip", exact_recip, -denormal, -f32::MAX),
        ("recip", exact_recip, f32::MAX, 0.0),
        ("recip", exact_recip, -inf, 0.0),
        ("rsqrt", exact_rsqrt, 0.0, f32::MAX),
        ("rsqrt", exact_rsqrt, denormal, f32::MAX),
        ("rsqrt", exact_rsqrt, inf, 0.0),
        ("rsqrt", exact_rsqrt, -1.0, f32::NAN),
        ("exp2", exact_exp2, f32::from_bits(0xc2fc_0001), 0.0),
        ("exp2", exact_exp2, -inf, 0.0),
        ("exp2", exact_exp2, 128.0, f32::MAX),
        ("exp2", exact_exp2, inf, f32::MAX),
        ("exp2", exact_exp2, denormal, 1.0),
        ("exp", exact_exp, -87.34, 0.0),
        ("exp", exact_exp, -inf, 0.0),
        ("exp", exact_exp, 89.0, f32::MAX),
        ("exp", exact_exp, inf, f32::MAX),
        ("ln", exact_ln, 0.0, -f32::MAX),
        ("ln", exact_ln, denormal, -f32::MAX),
        ("ln", exact_ln, -1.0, f32::NAN),
        ("ln", exact_ln, inf, f32::MAX),
        ("sigmoid", exact_sigmoid, 100.0, 1.0),
        ("sigmoid", exact_sigmoid, inf, 1.0),
        ("sigmoid", exact_sigmoid, -inf, 0.0),
        ("silu", exact_silu, f32::MAX, f32::MAX),
        ("silu", exact_silu, inf, inf),
        ("silu", exact_silu, -inf, 0.0),
        ("silu", exact_silu, -denormal, 0.0),
        ("gelu_tanh", exact_gelu_tanh, f32::MAX, f32::MAX),
        ("gelu_tanh", exact_gelu_tanh, -inf, 0.0),
        ("gelu_tanh", exact_gelu_tanh, -0.0, 0.0),
        ("gelu_erf", exact_gelu_erf, f32::MAX, f32::MAX),
        ("gelu_erf", exact_gelu_erf, -inf, 0.0),
        ("gelu_erf", exact_gelu_erf, -0.0, 0.0),
        ("softplus", exact_softplus, 1e30, 1e30),
        ("softplus", exact_softplus, inf, inf),
        ("softplus", exact_softplus, -inf, 0.0),
        ("tanh", exact_tanh, inf, 1.0),
        ("tanh", exact_tanh, -1e10, -1.0),
        ("tanh", exact_tanh, -denormal, 0.0),
    ];
    for (name, f, x, want) in cases {
        assert_eq!(f(x).to_bits(), want.to_bits(), "{name}({x:e}) is {:e}, expected {want:e}", f(x));
    }
    for (name, f) in ALL {
        for nan in [0x7fc0_0000, 0xffc0_0000, 0x7f80_0001, 0xffff_ffff] {
            assert_eq!(f(f32::from_bits(nan)).to_bits(), 0x7fc0_0000, "{name}(NaN)");
        }
    }
}

#[test]
fn no_denormals_and_no_infinities() {
    for (name, f) in ALL {
        for i in 0..400_000u32 {
            let x = f32::from_bits(i.wrapping_mul(2_654_435_761));
            let y = f(x);
            if x.is_finite() {
                assert!(!y.is_infinite() && !y.is_subnormal(), "{name}({x:e}) is {y:e}");
                assert!(!y.is_nan() || x < 0.0, "{name}({x:e}) is NaN");
            }
        }
    }
}

#[test]
fn monotone() {
    let rising: [(&str, Function, f32, f32); 5] = [
        ("exp2", exact_exp2, -130.0, 130.0),
        ("exp", exact_exp, -90.0, 90.0),
        ("ln", exact_ln, 1e-6, 40.0),
        ("sigmoid", exact_sigmoid, -90.0, 20.0),
        ("tanh", exact_tanh, -11.0, 11.0),
    ];
    for (name, f, lo, hi) in rising {
        let points = (0..=100_000).map(|i| lo + (hi - lo) * (i as f32 / 100_000.0));
        let values: Vec<f32> = points.map(f).collect();
        assert!(values.is_sorted(), "{name} falls somewhere between {lo} and {hi}");
    }
}
