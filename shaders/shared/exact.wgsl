// Elementary functions whose bits are the same on every backend: the twin of src/numerics/exact.rs, line by line, and of
// src/numerics/round.rs. What they return at their edges is written there.
//
// Needs `params`, a uniform with a member `zero: u32` that holds 0.

// A product that feeds an addition, hidden behind a zero the compiler cannot see, so that the two are never fused. Sums
// that a compiler could regroup (those with a constant, those whose error is recovered) are hidden the same way.
fn guard(product: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(product) ^ params.zero);
}

// x, or +0 where its magnitude is below 2^-100: a device may flush what follows from smaller ones.
fn flush_small(x: f32) -> f32 {
    return select(x, 0.0, (bitcast<u32>(x) & 0x7fffffffu) < 0x0d800000u);
}

// `x` rounded to `n` significant bits (1 to 23), ties to even.
fn round_sig(x: f32, n: u32) -> f32 {
    let b = bitcast<u32>(x);
    let half = (1u << (23u - n)) - 1u + ((b >> (24u - n)) & 1u);
    return bitcast<f32>((b + half) & (0xffffffffu << (24u - n)));
}

// Whether `x` is neither an infinity nor NaN.
fn is_finite_bits(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7f800000u) != 0x7f800000u;
}

// The bits of `x` as f16: clamped to 65504, +0 below 2^-14, ties to even. NaN gives 0x7e00.
fn to_f16_bits(x: f32) -> u32 {
    let b = bitcast<u32>(x);
    let sign = (b >> 16u) & 0x8000u;
    let magnitude = min(b & 0x7fffffffu, 0x477fe000u);
    let rounded = magnitude + 0xfffu + ((magnitude >> 13u) & 1u);
    let half = sign | ((rounded - min(0x38000000u, rounded)) >> 13u);
    let normal = select(half, 0u, magnitude < 0x38800000u);
    return select(normal, 0x7e00u, (b & 0x7fffffffu) > 0x7f800000u);
}

const MAX_BITS: u32 = 0x7f7fffffu;
const NAN_BITS: u32 = 0x7fc00000u;

const LOG2E: f32 = 1.442695;
// ln 2 in 15 bits, so that its product with an integer below 2^9 is exact.
const LN2_HI: f32 = 0.69314575;
const LN2_LO: f32 = 1.4286068e-6;

// exp(x) is the largest finite number above it.
const EXP_MAX: f32 = 88.72283;
// exp(x) is zero at and below it.
const EXP_MIN: f32 = -104.0;

// 2^r = 1 + r q(r) on vec2<f32>(-1/2, 1/2), error 2^-28
const EXP2_0: f32 = 0.6931472;
const EXP2_1: f32 = 0.2402265;
const EXP2_2: f32 = 0.055503596;
const EXP2_3: f32 = 0.0096180625;
const EXP2_4: f32 = 0.0013390984;
const EXP2_5: f32 = 0.0001546288;

// e^r = 1 + r + r^2 q(r) on vec2<f32>(-ln 2 / 2, ln 2 / 2), error 2^-28
const EXP_0: f32 = 0.5;
const EXP_1: f32 = 0.1666652;
const EXP_2: f32 = 0.04166641;
const EXP_3: f32 = 0.008368826;
const EXP_4: f32 = 0.0013939848;

// ln(1 + f) = f - f^2 / 2 + f^3 q(f) on vec2<f32>(sqrt(1/2) - 1, sqrt(2) - 1), error 2^-30
const LN_0: f32 = 0.33333313;
const LN_1: f32 = -0.2500001;
const LN_2: f32 = 0.20002072;
const LN_3: f32 = -0.1666799;
const LN_4: f32 = 0.14220363;
const LN_5: f32 = -0.12406208;
const LN_6: f32 = 0.11883471;
const LN_7: f32 = -0.11670183;
const LN_8: f32 = 0.06749539;

// tanh x = x + x^3 q(x^2) below TANH_SMALL, error 2^-32
const TANH_SMALL: f32 = 0.625;
const TANH_0: f32 = -0.3333333;
const TANH_1: f32 = 0.13333222;
const TANH_2: f32 = -0.053948462;
const TANH_3: f32 = 0.02170875;
const TANH_4: f32 = -0.008195086;
const TANH_5: f32 = 0.0021576358;

// The tail of the normal distribution: Q(t) = e^(-t^2 / 2) S(v) / (t + MILLS_A), v = 1 - 2 MILLS_A / (t + MILLS_A), and
// S(v) = MILLS_MID + q(v) on vec2<f32>(-1, 0.81), error 2^-27. S lies between 0.40 and 0.75, so its relative error stays small.
const MILLS_A: f32 = 1.5;
const MILLS_MID: f32 = 0.6171875;
const MILLS_0: f32 = 0.00015450295;
const MILLS_1: f32 = -0.19509947;
const MILLS_2: f32 = -0.057495657;
const MILLS_3: f32 = 0.017896404;
const MILLS_4: f32 = 0.017642198;
const MILLS_5: f32 = 0.0039889705;
const MILLS_6: f32 = -0.0024402244;
const MILLS_7: f32 = -0.002712979;
const MILLS_8: f32 = -0.0010335639;
const MILLS_9: f32 = 0.00025392402;
const MILLS_10: f32 = 0.0004618645;
const MILLS_11: f32 = 0.00014956499;
const MILLS_12: f32 = -2.1153772e-7;

// 2 sqrt(2 / pi) and 0.044715 times it, as pairs
const GELU_A_HI: f32 = 1.5957692;
const GELU_A_LO: f32 = -4.534068e-8;
const GELU_B_HI: f32 = 0.071354814;
const GELU_B_LO: f32 = 2.3988325e-9;

// Above it silu(x) and both gelu(x) round to x.
const LINEAR_FROM: f32 = 20.0;
// Below this magnitude silu(x) and both gelu(x) round to x / 2.
const HALF_BELOW: f32 = 9.313226e-10;

// `y`, or NaN where `x` is NaN.
fn keep_nan(x: f32, y: f32) -> f32 {
    let nan = (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
    return bitcast<f32>(select(bitcast<u32>(y), NAN_BITS, nan));
}

// `y * 2^n`, +0 where that is below 2^-126. The result is below 2^128.
fn scale2(y: f32, n: i32) -> f32 {
    let b = bitcast<u32>(y);
    let exponent = i32((b >> 23u) & 0xffu) + n;
    return bitcast<f32>(select(b + (u32(n) << 23u), 0u, exponent <= 0));
}

// The upper 12 bits of the significand.
fn high12(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) & 0xfffff000u);
}

// a + b as a pair; |a| >= |b| or a = 0.
fn fast_two_sum(a: f32, b: f32) -> vec2<f32> {
    let hi = guard(a + b);
    return vec2<f32>(hi, b - guard(hi - a));
}

// a + b as a pair.
fn two_sum(a: f32, b: f32) -> vec2<f32> {
    let hi = guard(a + b);
    let b_in = guard(hi - a);
    return vec2<f32>(hi, guard(a - (hi - b_in)) + guard(b - b_in));
}

// a * b as a pair.
fn two_product(a: f32, b: f32) -> vec2<f32> {
    let hi = guard(a * b);
    let a1 = high12(a);
    let a2 = a - a1;
    let b1 = high12(b);
    let b2 = b - b1;
    // exact: halves of 12 bits
    let e1 = a1 * b1 - hi;
    // exact: halves of 12 bits
    let e2 = e1 + a1 * b2;
    // exact: halves of 12 bits
    let e3 = e2 + a2 * b1;
    // exact: halves of 12 bits
    return vec2<f32>(hi, e3 + a2 * b2);
}

// 1 / d within 2^-16, d positive and normal: the bits read as a logarithm, then two Newton steps.
fn rough_recip(d: f32) -> f32 {
    let y0 = bitcast<f32>(0x7ef311c7u - bitcast<u32>(d));
    let y1 = y0 * (2.0 - guard(d * y0));
    return y1 * (2.0 - guard(d * y1));
}

// n / d rounded almost correctly, n and d pairs, d positive: a quotient of 12 bits, then its exact remainder.
fn quotient(n: vec2<f32>, d: vec2<f32>) -> f32 {
    let y = rough_recip(d[0]);
    let q = high12(n[0] * y);
    let d1 = high12(d[0]);
    let d2 = d[0] - d1;
    // exact: 12 bits times 12 bits
    let r1 = guard(n[0] - q * d1);
    // exact: 12 bits times 12 bits
    let r2 = r1 - q * d2;
    let r3 = r2 + (n[1] - guard(q * d[1]));
    return q + guard(r3 * y);
}

// e^x as `p * 2^n`.
struct Exp {
    // A pair between 0.70 and 1.42.
    p: vec2<f32>,
    n: i32,
}

// e^(x + lo), |x| below 350 and lo less than an ulp of it.
fn exp_parts(x: f32, lo: f32) -> Exp {
    let n = round(x * LOG2E);
    // exact: 9 bits times 15 bits
    let r0 = guard(x - n * LN2_HI);
    let r1 = lo - guard(n * LN2_LO);
    let r = two_sum(r0, r1);
    let q3 = EXP_3 + guard(r[0] * EXP_4);
    let q2 = EXP_2 + guard(r[0] * q3);
    let q1 = EXP_1 + guard(r[0] * q2);
    let q0 = EXP_0 + guard(r[0] * q1);
    let tail = guard((r[0] * r[0]) * q0) + r[1];
    let s = fast_two_sum(1.0, r[0]);
    return Exp(fast_two_sum(s[0], s[1] + tail), i32(n));
}

// ln(d) + c for a positive, normal d and a small c.
fn ln_parts(d: f32, c: f32) -> f32 {
    let b = bitcast<u32>(d) - 0x3f3504f3u;
    let k = f32(i32(b) >> 23u);
    let f = guard(bitcast<f32>((b & 0x007fffffu) + 0x3f3504f3u) - 1.0);
    let q7 = LN_7 + guard(f * LN_8);
    let q6 = LN_6 + guard(f * q7);
    let q5 = LN_5 + guard(f * q6);
    let q4 = LN_4 + guard(f * q5);
    let q3 = LN_3 + guard(f * q4);
    let q2 = LN_2 + guard(f * q3);
    let q1 = LN_1 + guard(f * q2);
    let q0 = LN_0 + guard(f * q1);
    let f2 = guard(f * f);
    let tail = (guard((f2 * f) * q0) + guard(k * LN2_LO)) + c;
    // exact: a power of two
    let rest = tail - 0.5 * f2;
    // exact: 9 bits times 15 bits
    return (f + rest) + k * LN2_HI;
}

// s / (1 + e^-(w + lo)).
fn logistic(s: f32, w: f32, lo: f32) -> f32 {
    let negative = w < 0.0;
    let e = exp_parts(select(0.0 - w, w, negative), select(0.0 - lo, lo, negative));
    let d = one_plus(e);
    let sp = two_product(s, e.p[0]);
    let n0 = select(s, sp[0], negative);
    let n1 = select(0.0, sp[1] + guard(s * e.p[1]), negative);
    return scale2(quotient(vec2<f32>(n0, n1), d), select(0, e.n, negative));
}

// 1 + e for an e of at most 1, as a pair; an e below 2^-64 counts as zero.
fn one_plus(e: Exp) -> vec2<f32> {
    let power = select(scale2(1.0, e.n), 0.0, e.n < -64);
    // exact: a power of two
    let e0 = e.p[0] * power;
    let e1 = e.p[1] * power;
    let d = fast_two_sum(1.0, e0);
    return vec2<f32>(d[0], d[1] + guard(e1));
}

// 1 / x. Zero gives the largest finite number with x's sign; magnitudes above 2^126 give +0.
fn exact_recip(x: f32) -> f32 {
    let b = bitcast<u32>(x);
    let exponent = i32((b >> 23u) & 0xffu);
    let m = bitcast<f32>((b & 0x007fffffu) | 0x3f800000u);
    let y = bitcast<u32>(scale2(quotient(vec2<f32>(1.0, 0.0), vec2<f32>(m, 0.0)), 127 - exponent));
    let magnitude = select(y, MAX_BITS, exponent == 0);
    let sign = select(b & 0x80000000u, 0u, magnitude == 0u);
    return keep_nan(x, bitcast<f32>(magnitude | sign));
}

// 1 / sqrt(x). Zero gives the largest finite number, infinity +0, a negative number NaN.
fn exact_rsqrt(x: f32) -> f32 {
    let b = bitcast<u32>(x);
    let exponent = i32((b >> 23u) & 0xffu);
    // x = m * 4^k, m in [1, 4)
    let k = (exponent - 127) >> 1u;
    let m = bitcast<f32>((b & 0x007fffffu) | (u32(exponent - 2 * k) << 23u));
    let y0 = bitcast<f32>(0x5f375a86u - (bitcast<u32>(m) >> 1u));
    let y1 = y0 * (1.5 - guard((0.5 * m) * (y0 * y0)));
    let y2 = y1 * (1.5 - guard((0.5 * m) * (y1 * y1)));
    // the remainder 1 - m y^2 of the upper 12 bits, and two terms of its series
    let y = high12(y2);
    let s = guard(y * y);
    let s1 = high12(s);
    let s2 = s - s1;
    let m1 = high12(m);
    let m2 = m - m1;
    // exact: 12 bits times 12 bits
    let e1 = guard(1.0 - m1 * s1);
    // exact: 12 bits times 12 bits
    let e2 = e1 - m1 * s2;
    // exact: 12 bits times 12 bits
    let e3 = e2 - m2 * s1;
    // exact: 12 bits times 12 bits
    let e = e3 - m2 * s2;
    let c = e * (0.5 + guard(0.375 * e));
    let root = bitcast<u32>(scale2(y + guard(y * c), 0 - k));
    let finite = select(root, 0u, exponent == 255);
    let positive = select(finite, NAN_BITS, b >> 31u == 1u);
    return keep_nan(x, bitcast<f32>(select(positive, MAX_BITS, exponent == 0)));
}

// 2^x, for x in [-126, 128); 0 below, the largest finite number above. 2^0 is 1 exactly.
fn exact_exp2(x: f32) -> f32 {
    let low = select(x, -126.0, x < -126.0);
    let c = select(low, 0.0, low >= 128.0);
    let n = round(c);
    let r = c - n;
    let q4 = EXP2_4 + guard(r * EXP2_5);
    let q3 = EXP2_3 + guard(r * q4);
    let q2 = EXP2_2 + guard(r * q3);
    let q1 = EXP2_1 + guard(r * q2);
    let q0 = EXP2_0 + guard(r * q1);
    let y = bitcast<u32>(scale2(1.0 + guard(r * q0), i32(n)));
    let small = select(y, 0u, x < -126.0);
    return keep_nan(x, bitcast<f32>(select(small, MAX_BITS, x >= 128.0)));
}

// e^x; 0 below 2^-126, the largest finite number for x above 88.72283.
fn exact_exp(x: f32) -> f32 {
    let low = select(x, EXP_MIN, x < EXP_MIN);
    let e = exp_parts(select(low, 0.0, low > EXP_MAX), 0.0);
    let y = bitcast<u32>(scale2(e.p[0], e.n));
    return keep_nan(x, bitcast<f32>(select(y, MAX_BITS, x > EXP_MAX)));
}

// The natural logarithm. Zero gives minus the largest finite number, a negative number NaN, infinity the largest finite number.
fn exact_ln(x: f32) -> f32 {
    let b = bitcast<u32>(x);
    let exponent = (b >> 23u) & 0xffu;
    let usual = exponent != 0u && exponent != 255u && b >> 31u == 0u;
    let y = bitcast<u32>(ln_parts(select(1.0, x, usual), 0.0));
    let finite = select(y, MAX_BITS, exponent == 255u);
    let positive = select(finite, NAN_BITS, b >> 31u == 1u);
    let nonzero = select(positive, MAX_BITS | 0x80000000u, exponent == 0u);
    return keep_nan(x, bitcast<f32>(nonzero));
}

// 1 / (1 + e^-x).
fn exact_sigmoid(x: f32) -> f32 {
    let low = select(x, EXP_MIN, x < EXP_MIN);
    let c = select(low, LINEAR_FROM, low > LINEAR_FROM);
    return keep_nan(x, logistic(1.0, c, 0.0));
}

// x / (1 + e^-x). Infinity gives itself.
fn exact_silu(x: f32) -> f32 {
    let low = select(x, EXP_MIN, x < EXP_MIN);
    let c = select(low, 0.0, low > LINEAR_FROM);
    return keep_nan(x, unit_ends(x, logistic(c, c, 0.0)));
}

// GELU by its tanh form: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), which is x / (1 + e^-w) with w = x (A + B x^2).
// Infinity gives itself.
fn exact_gelu_tanh(x: f32) -> f32 {
    let low = select(x, -12.0, x < -12.0);
    let c = select(low, 0.0, low > LINEAR_FROM);
    let square = two_product(c, c);
    let cubic = two_product(square[0], GELU_B_HI);
    let cubic_lo = (cubic[1] + guard(square[1] * GELU_B_HI)) + guard(square[0] * GELU_B_LO);
    let a = two_sum(GELU_A_HI, cubic[0]);
    let a_lo = (a[1] + cubic_lo) + GELU_A_LO;
    let w = two_product(c, a[0]);
    return keep_nan(x, unit_ends(x, logistic(c, w[0], w[1] + guard(c * a_lo))));
}

// GELU by the error function: x/2 (1 + erf(x / sqrt(2))), which is max(x, 0) - |x| Q(|x|). Infinity gives itself.
fn exact_gelu_erf(x: f32) -> f32 {
    let magnitude = bitcast<f32>(bitcast<u32>(x) & 0x7fffffffu);
    let t = select(magnitude, 14.0, magnitude > 14.0);
    let square = two_product(t, t);
    // exact: powers of two
    let e = exp_parts(-0.5 * square[0], -0.5 * square[1]);
    let d = two_sum(t, MILLS_A);
    let v = 1.0 - guard((2.0 * MILLS_A) * quotient(vec2<f32>(1.0, 0.0), d));
    let q11 = MILLS_11 + guard(v * MILLS_12);
    let q10 = MILLS_10 + guard(v * q11);
    let q9 = MILLS_9 + guard(v * q10);
    let q8 = MILLS_8 + guard(v * q9);
    let q7 = MILLS_7 + guard(v * q8);
    let q6 = MILLS_6 + guard(v * q7);
    let q5 = MILLS_5 + guard(v * q6);
    let q4 = MILLS_4 + guard(v * q5);
    let q3 = MILLS_3 + guard(v * q4);
    let q2 = MILLS_2 + guard(v * q3);
    let q1 = MILLS_1 + guard(v * q2);
    let q0 = guard(MILLS_0 + guard(v * q1));
    let s = fast_two_sum(MILLS_MID, q0);
    let ps = two_product(e.p[0], s[0]);
    let ps_lo = (ps[1] + guard(e.p[0] * s[1])) + guard(e.p[1] * s[0]);
    let tps = two_product(t, ps[0]);
    let g = scale2(quotient(vec2<f32>(tps[0], tps[1] + guard(t * ps_lo)), d), e.n);
    return keep_nan(x, unit_ends(x, select(0.0, x, x > 0.0) - g));
}

// The ends that silu and both gelus share: x / 2 near zero, x where that is what the function rounds to.
fn unit_ends(x: f32, middle: f32) -> f32 {
    let magnitude = bitcast<f32>(bitcast<u32>(x) & 0x7fffffffu);
    let y = select(middle, scale2(x, -1), magnitude < HALF_BELOW);
    return select(y, x, x > LINEAR_FROM);
}

// ln(1 + e^x). Infinity gives itself.
fn exact_softplus(x: f32) -> f32 {
    let low = select(x, EXP_MIN, x < EXP_MIN);
    let c = select(low, LINEAR_FROM, low > LINEAR_FROM);
    let e = exp_parts(select(0.0 - c, c, c < 0.0), 0.0);
    let d = one_plus(e);
    let y = select(0.0, c, c > 0.0) + ln_parts(d[0], quotient(vec2<f32>(d[1], 0.0), vec2<f32>(d[0], 0.0)));
    let tail = select(y, scale2(e.p[0], e.n), c < 0.0 && e.n < -26);
    return keep_nan(x, select(tail, x, x > LINEAR_FROM));
}

// The hyperbolic tangent: a polynomial near zero, 1 - 2 e^-2|x| / (1 + e^-2|x|) elsewhere.
fn exact_tanh(x: f32) -> f32 {
    let b = bitcast<u32>(x);
    let magnitude = bitcast<f32>(b & 0x7fffffffu);
    let t = select(magnitude, 10.0, magnitude > 10.0);
    let z = t * t;
    let q4 = TANH_4 + guard(z * TANH_5);
    let q3 = TANH_3 + guard(z * q4);
    let q2 = TANH_2 + guard(z * q3);
    let q1 = TANH_1 + guard(z * q2);
    let q0 = TANH_0 + guard(z * q1);
    let near = t + guard((t * z) * q0);
    // exact: a power of two
    let far = 1.0 - logistic(2.0, -2.0 * t, 0.0);
    let y = bitcast<u32>(scale2(select(far, near, t < TANH_SMALL), 0));
    return keep_nan(x, bitcast<f32>(y | select(b & 0x80000000u, 0u, y == 0u)));
}
