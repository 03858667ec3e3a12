// Elementary functions whose bits are the same on every backend: the twin of shaders/shared/exact.wgsl and of src/numerics/exact.rs, function by
// function, and of src/numerics/round.rs. What they return at their edges is written in exact.rs. Needs a compiler that fuses nothing (--fmad=false).
#pragma once

// A product that feeds an addition: never fused with it. WGSL and Rust write `guard(a * b)`.
__device__ inline float product(float a, float b) {
    return __fmul_rn(a, b);
}

// A sum that other compilers could regroup; CUDA's never do. Not for products.
__device__ inline float guard(float sum) {
    return sum;
}

// x, or +0 where its magnitude is below 2^-100: a device may flush what follows from smaller ones.
__device__ inline float flush_small(float x) {
    return (__float_as_uint(x) & 0x7fffffffu) < 0x0d800000u ? 0.0f : x;
}

// `x` rounded to `n` significant bits (1 to 23), ties to even.
__device__ inline float round_sig(float x, unsigned n) {
    const unsigned b = __float_as_uint(x);
    const unsigned half = (1u << (23u - n)) - 1u + ((b >> (24u - n)) & 1u);
    return __uint_as_float((b + half) & (0xffffffffu << (24u - n)));
}

// Whether `x` is neither an infinity nor NaN.
__device__ inline bool is_finite_bits(float x) {
    return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u;
}

// The bits of `x` as f16: clamped to 65504, +0 below 2^-14, ties to even. NaN gives 0x7e00.
__device__ inline unsigned to_f16_bits(float x) {
    const unsigned b = __float_as_uint(x);
    const unsigned sign = (b >> 16) & 0x8000u;
    const unsigned magnitude = min(b & 0x7fffffffu, 0x477fe000u);
    const unsigned rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    const unsigned half = sign | ((rounded - min(0x38000000u, rounded)) >> 13);
    const unsigned normal = magnitude < 0x38800000u ? 0u : half;
    return (b & 0x7fffffffu) > 0x7f800000u ? 0x7e00u : normal;
}

constexpr unsigned MAX_BITS = 0x7f7fffffu;
constexpr unsigned NAN_BITS = 0x7fc00000u;

constexpr float LOG2E = 1.442695f;
// ln 2 in 15 bits, so that its product with an integer below 2^9 is exact.
constexpr float LN2_HI = 0.69314575f;
constexpr float LN2_LO = 1.4286068e-6f;

// exp(x) is the largest finite number above it.
constexpr float EXP_MAX = 88.72283f;
// exp(x) is zero at and below it.
constexpr float EXP_MIN = -104.0f;

// 2^r = 1 + r q(r) on [-1/2, 1/2], error 2^-28
constexpr float EXP2_0 = 0.6931472f;
constexpr float EXP2_1 = 0.2402265f;
constexpr float EXP2_2 = 0.055503596f;
constexpr float EXP2_3 = 0.0096180625f;
constexpr float EXP2_4 = 0.0013390984f;
constexpr float EXP2_5 = 0.0001546288f;

// e^r = 1 + r + r^2 q(r) on [-ln 2 / 2, ln 2 / 2], error 2^-28
constexpr float EXP_0 = 0.5f;
constexpr float EXP_1 = 0.1666652f;
constexpr float EXP_2 = 0.04166641f;
constexpr float EXP_3 = 0.008368826f;
constexpr float EXP_4 = 0.0013939848f;

// ln(1 + f) = f - f^2 / 2 + f^3 q(f) on [sqrt(1/2) - 1, sqrt(2) - 1], error 2^-30
constexpr float LN_0 = 0.33333313f;
constexpr float LN_1 = -0.2500001f;
constexpr float LN_2 = 0.20002072f;
constexpr float LN_3 = -0.1666799f;
constexpr float LN_4 = 0.14220363f;
constexpr float LN_5 = -0.12406208f;
constexpr float LN_6 = 0.11883471f;
constexpr float LN_7 = -0.11670183f;
constexpr float LN_8 = 0.06749539f;

// tanh x = x + x^3 q(x^2) below TANH_SMALL, error 2^-32
constexpr float TANH_SMALL = 0.625f;
constexpr float TANH_0 = -0.3333333f;
constexpr float TANH_1 = 0.13333222f;
constexpr float TANH_2 = -0.053948462f;
constexpr float TANH_3 = 0.02170875f;
constexpr float TANH_4 = -0.008195086f;
constexpr float TANH_5 = 0.0021576358f;

// The tail of the normal distribution: Q(t) = e^(-t^2 / 2) S(v) / (t + MILLS_A), v = 1 - 2 MILLS_A / (t + MILLS_A), and
// S(v) = MILLS_MID + q(v) on [-1, 0.81], error 2^-27. S lies between 0.40 and 0.75, so its relative error stays small.
constexpr float MILLS_A = 1.5f;
constexpr float MILLS_MID = 0.6171875f;
constexpr float MILLS_0 = 0.00015450295f;
constexpr float MILLS_1 = -0.19509947f;
constexpr float MILLS_2 = -0.057495657f;
constexpr float MILLS_3 = 0.017896404f;
constexpr float MILLS_4 = 0.017642198f;
constexpr float MILLS_5 = 0.0039889705f;
constexpr float MILLS_6 = -0.0024402244f;
constexpr float MILLS_7 = -0.002712979f;
constexpr float MILLS_8 = -0.0010335639f;
constexpr float MILLS_9 = 0.00025392402f;
constexpr float MILLS_10 = 0.0004618645f;
constexpr float MILLS_11 = 0.00014956499f;
constexpr float MILLS_12 = -2.1153772e-7f;

// 2 sqrt(2 / pi) and 0.044715 times it, as pairs
constexpr float GELU_A_HI = 1.5957692f;
constexpr float GELU_A_LO = -4.534068e-8f;
constexpr float GELU_B_HI = 0.071354814f;
constexpr float GELU_B_LO = 2.3988325e-9f;

// Above it silu(x) and both gelu(x) round to x.
constexpr float LINEAR_FROM = 20.0f;
// Below this magnitude silu(x) and both gelu(x) round to x / 2.
constexpr float HALF_BELOW = 9.313226e-10f;

// A value known to more than 24 bits: the unevaluated sum of the rounded value and the rest.
struct Pair {
    float hi, lo;
};

// `y`, or NaN where `x` is NaN.
__device__ inline float keep_nan(float x, float y) {
    const bool nan = (__float_as_uint(x) & 0x7fffffffu) > 0x7f800000u;
    return __uint_as_float(nan ? NAN_BITS : __float_as_uint(y));
}

// `y * 2^n`, +0 where that is below 2^-126. The result is below 2^128.
__device__ inline float scale2(float y, int n) {
    const unsigned b = __float_as_uint(y);
    const int exponent = (int)((b >> 23) & 0xffu) + n;
    return __uint_as_float(exponent <= 0 ? 0u : b + ((unsigned)n << 23));
}

// The upper 12 bits of the significand.
__device__ inline float high12(float x) {
    return __uint_as_float(__float_as_uint(x) & 0xfffff000u);
}

// a + b as a pair; |a| >= |b| or a = 0.
__device__ inline Pair fast_two_sum(float a, float b) {
    const float hi = guard(a + b);
    return {hi, b - guard(hi - a)};
}

// a + b as a pair.
__device__ inline Pair two_sum(float a, float b) {
    const float hi = guard(a + b);
    const float b_in = guard(hi - a);
    return {hi, guard(a - (hi - b_in)) + guard(b - b_in)};
}

// a * b as a pair.
__device__ inline Pair two_product(float a, float b) {
    const float hi = product(a, b);
    const float a1 = high12(a);
    const float a2 = a - a1;
    const float b1 = high12(b);
    const float b2 = b - b1;
    // exact: halves of 12 bits
    const float e1 = a1 * b1 - hi;
    // exact: halves of 12 bits
    const float e2 = e1 + a1 * b2;
    // exact: halves of 12 bits
    const float e3 = e2 + a2 * b1;
    // exact: halves of 12 bits
    return {hi, e3 + a2 * b2};
}

// 1 / d within 2^-16, d positive and normal: the bits read as a logarithm, then two Newton steps.
__device__ inline float rough_recip(float d) {
    const float y0 = __uint_as_float(0x7ef311c7u - __float_as_uint(d));
    const float y1 = y0 * (2.0f - product(d, y0));
    return y1 * (2.0f - product(d, y1));
}

// n / d rounded almost correctly, d positive: a quotient of 12 bits, then its exact remainder.
__device__ inline float quotient(Pair n, Pair d) {
    const float y = rough_recip(d.hi);
    const float q = high12(n.hi * y);
    const float d1 = high12(d.hi);
    const float d2 = d.hi - d1;
    // exact: 12 bits times 12 bits
    const float r1 = guard(n.hi - q * d1);
    // exact: 12 bits times 12 bits
    const float r2 = r1 - q * d2;
    const float r3 = r2 + (n.lo - product(q, d.lo));
    return q + product(r3, y);
}

// e^x as `p * 2^n`.
struct Exp {
    // Between 0.70 and 1.42.
    Pair p;
    int n;
};

// e^(x + lo), |x| below 350 and lo less than an ulp of it.
__device__ inline Exp exp_parts(float x, float lo) {
    const float n = rintf(x * LOG2E);
    // exact: 9 bits times 15 bits
    const float r0 = guard(x - n * LN2_HI);
    const float r1 = lo - product(n, LN2_LO);
    const Pair r = two_sum(r0, r1);
    const float q3 = EXP_3 + product(r.hi, EXP_4);
    const float q2 = EXP_2 + product(r.hi, q3);
    const float q1 = EXP_1 + product(r.hi, q2);
    const float q0 = EXP_0 + product(r.hi, q1);
    const float tail = product(r.hi * r.hi, q0) + r.lo;
    const Pair s = fast_two_sum(1.0f, r.hi);
    return {fast_two_sum(s.hi, s.lo + tail), __float2int_rz(n)};
}

// ln(d) + c for a positive, normal d and a small c.
__device__ inline float ln_parts(float d, float c) {
    const unsigned b = __float_as_uint(d) - 0x3f3504f3u;
    const float k = (float)((int)b >> 23);
    const float f = guard(__uint_as_float((b & 0x007fffffu) + 0x3f3504f3u) - 1.0f);
    const float q7 = LN_7 + product(f, LN_8);
    const float q6 = LN_6 + product(f, q7);
    const float q5 = LN_5 + product(f, q6);
    const float q4 = LN_4 + product(f, q5);
    const float q3 = LN_3 + product(f, q4);
    const float q2 = LN_2 + product(f, q3);
    const float q1 = LN_1 + product(f, q2);
    const float q0 = LN_0 + product(f, q1);
    const float f2 = product(f, f);
    const float tail = (product(f2 * f, q0) + product(k, LN2_LO)) + c;
    // exact: a power of two
    const float rest = tail - 0.5f * f2;
    // exact: 9 bits times 15 bits
    return (f + rest) + k * LN2_HI;
}

// 1 + e for an e of at most 1, as a pair; an e below 2^-64 counts as zero.
__device__ inline Pair one_plus(Exp e) {
    const float power = e.n < -64 ? 0.0f : scale2(1.0f, e.n);
    // exact: a power of two
    const float e0 = e.p.hi * power;
    const float e1 = e.p.lo * power;
    const Pair d = fast_two_sum(1.0f, e0);
    return {d.hi, d.lo + guard(e1)};
}

// s / (1 + e^-(w + lo)).
__device__ inline float logistic(float s, float w, float lo) {
    const bool negative = w < 0.0f;
    const Exp e = exp_parts(negative ? w : 0.0f - w, negative ? lo : 0.0f - lo);
    const Pair d = one_plus(e);
    const Pair sp = two_product(s, e.p.hi);
    const float n0 = negative ? sp.hi : s;
    const float n1 = negative ? sp.lo + product(s, e.p.lo) : 0.0f;
    return scale2(quotient({n0, n1}, d), negative ? e.n : 0);
}

// 1 / x. Zero gives the largest finite number with x's sign; magnitudes above 2^126 give +0.
__device__ inline float exact_recip(float x) {
    const unsigned b = __float_as_uint(x);
    const int exponent = (int)((b >> 23) & 0xffu);
    const float m = __uint_as_float((b & 0x007fffffu) | 0x3f800000u);
    const unsigned y = __float_as_uint(scale2(quotient({1.0f, 0.0f}, {m, 0.0f}), 127 - exponent));
    const unsigned magnitude = exponent == 0 ? MAX_BITS : y;
    const unsigned sign = magnitude == 0u ? 0u : b & 0x80000000u;
    return keep_nan(x, __uint_as_float(magnitude | sign));
}

// 1 / sqrt(x). Zero gives the largest finite number, infinity +0, a negative number NaN.
__device__ inline float exact_rsqrt(float x) {
    const unsigned b = __float_as_uint(x);
    const int exponent = (int)((b >> 23) & 0xffu);
    // x = m * 4^k, m in [1, 4)
    const int k = (exponent - 127) >> 1;
    const float m = __uint_as_float((b & 0x007fffffu) | ((unsigned)(exponent - 2 * k) << 23));
    const float y0 = __uint_as_float(0x5f375a86u - (__float_as_uint(m) >> 1));
    const float y1 = y0 * (1.5f - product(0.5f * m, y0 * y0));
    const float y2 = y1 * (1.5f - product(0.5f * m, y1 * y1));
    // the remainder 1 - m y^2 of the upper 12 bits, and two terms of its series
    const float y = high12(y2);
    const float s = product(y, y);
    const float s1 = high12(s);
    const float s2 = s - s1;
    const float m1 = high12(m);
    const float m2 = m - m1;
    // exact: 12 bits times 12 bits
    const float e1 = guard(1.0f - m1 * s1);
    // exact: 12 bits times 12 bits
    const float e2 = e1 - m1 * s2;
    // exact: 12 bits times 12 bits
    const float e3 = e2 - m2 * s1;
    // exact: 12 bits times 12 bits
    const float e = e3 - m2 * s2;
    const float c = e * (0.5f + product(0.375f, e));
    const unsigned root = __float_as_uint(scale2(y + product(y, c), 0 - k));
    const unsigned finite = exponent == 255 ? 0u : root;
    const unsigned positive = b >> 31 == 1u ? NAN_BITS : finite;
    return keep_nan(x, __uint_as_float(exponent == 0 ? MAX_BITS : positive));
}

// 2^x, for x in [-126, 128); 0 below, the largest finite number above. 2^0 is 1 exactly.
__device__ inline float exact_exp2(float x) {
    const float low = x < -126.0f ? -126.0f : x;
    const float c = low >= 128.0f ? 0.0f : low;
    const float n = rintf(c);
    const float r = c - n;
    const float q4 = EXP2_4 + product(r, EXP2_5);
    const float q3 = EXP2_3 + product(r, q4);
    const float q2 = EXP2_2 + product(r, q3);
    const float q1 = EXP2_1 + product(r, q2);
    const float q0 = EXP2_0 + product(r, q1);
    const unsigned y = __float_as_uint(scale2(1.0f + product(r, q0), __float2int_rz(n)));
    const unsigned small = x < -126.0f ? 0u : y;
    return keep_nan(x, __uint_as_float(x >= 128.0f ? MAX_BITS : small));
}

// e^x; 0 below 2^-126, the largest finite number for x above 88.72283.
__device__ inline float exact_exp(float x) {
    const float low = x < EXP_MIN ? EXP_MIN : x;
    const Exp e = exp_parts(low > EXP_MAX ? 0.0f : low, 0.0f);
    const unsigned y = __float_as_uint(scale2(e.p.hi, e.n));
    return keep_nan(x, __uint_as_float(x > EXP_MAX ? MAX_BITS : y));
}

// The natural logarithm. Zero gives minus the largest finite number, a negative number NaN, infinity the largest finite number.
__device__ inline float exact_ln(float x) {
    const unsigned b = __float_as_uint(x);
    const unsigned exponent = (b >> 23) & 0xffu;
    const bool usual = exponent != 0u && exponent != 255u && b >> 31 == 0u;
    const unsigned y = __float_as_uint(ln_parts(usual ? x : 1.0f, 0.0f));
    const unsigned finite = exponent == 255u ? MAX_BITS : y;
    const unsigned positive = b >> 31 == 1u ? NAN_BITS : finite;
    const unsigned nonzero = exponent == 0u ? MAX_BITS | 0x80000000u : positive;
    return keep_nan(x, __uint_as_float(nonzero));
}

// The ends that silu and both gelus share: x / 2 near zero, x where that is what the function rounds to.
__device__ inline float unit_ends(float x, float middle) {
    const float magnitude = __uint_as_float(__float_as_uint(x) & 0x7fffffffu);
    const float y = magnitude < HALF_BELOW ? scale2(x, -1) : middle;
    return x > LINEAR_FROM ? x : y;
}

// 1 / (1 + e^-x).
__device__ inline float exact_sigmoid(float x) {
    const float low = x < EXP_MIN ? EXP_MIN : x;
    const float c = low > LINEAR_FROM ? LINEAR_FROM : low;
    return keep_nan(x, logistic(1.0f, c, 0.0f));
}

// x / (1 + e^-x). Infinity gives itself.
__device__ inline float exact_silu(float x) {
    const float low = x < EXP_MIN ? EXP_MIN : x;
    const float c = low > LINEAR_FROM ? 0.0f : low;
    return keep_nan(x, unit_ends(x, logistic(c, c, 0.0f)));
}

// GELU by its tanh form: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), which is x / (1 + e^-w) with w = x (A + B x^2).
// Infinity gives itself.
__device__ inline float exact_gelu_tanh(float x) {
    const float low = x < -12.0f ? -12.0f : x;
    const float c = low > LINEAR_FROM ? 0.0f : low;
    const Pair square = two_product(c, c);
    const Pair cubic = two_product(square.hi, GELU_B_HI);
    const float cubic_lo = (cubic.lo + product(square.lo, GELU_B_HI)) + product(square.hi, GELU_B_LO);
    const Pair a = two_sum(GELU_A_HI, cubic.hi);
    const float a_lo = (a.lo + cubic_lo) + GELU_A_LO;
    const Pair w = two_product(c, a.hi);
    return keep_nan(x, unit_ends(x, logistic(c, w.hi, w.lo + product(c, a_lo))));
}

// GELU by the error function: x/2 (1 + erf(x / sqrt(2))), which is max(x, 0) - |x| Q(|x|). Infinity gives itself.
__device__ inline float exact_gelu_erf(float x) {
    const float magnitude = __uint_as_float(__float_as_uint(x) & 0x7fffffffu);
    const float t = magnitude > 14.0f ? 14.0f : magnitude;
    const Pair square = two_product(t, t);
    // exact: powers of two
    const Exp e = exp_parts(-0.5f * square.hi, -0.5f * square.lo);
    const Pair d = two_sum(t, MILLS_A);
    const float v = 1.0f - product(2.0f * MILLS_A, quotient({1.0f, 0.0f}, d));
    const float q11 = MILLS_11 + product(v, MILLS_12);
    const float q10 = MILLS_10 + product(v, q11);
    const float q9 = MILLS_9 + product(v, q10);
    const float q8 = MILLS_8 + product(v, q9);
    const float q7 = MILLS_7 + product(v, q8);
    const float q6 = MILLS_6 + product(v, q7);
    const float q5 = MILLS_5 + product(v, q6);
    const float q4 = MILLS_4 + product(v, q5);
    const float q3 = MILLS_3 + product(v, q4);
    const float q2 = MILLS_2 + product(v, q3);
    const float q1 = MILLS_1 + product(v, q2);
    const float q0 = guard(MILLS_0 + product(v, q1));
    const Pair s = fast_two_sum(MILLS_MID, q0);
    const Pair ps = two_product(e.p.hi, s.hi);
    const float ps_lo = (ps.lo + product(e.p.hi, s.lo)) + product(e.p.lo, s.hi);
    const Pair tps = two_product(t, ps.hi);
    const float g = scale2(quotient({tps.hi, tps.lo + product(t, ps_lo)}, d), e.n);
    return keep_nan(x, unit_ends(x, (x > 0.0f ? x : 0.0f) - g));
}

// ln(1 + e^x). Infinity gives itself.
__device__ inline float exact_softplus(float x) {
    const float low = x < EXP_MIN ? EXP_MIN : x;
    const float c = low > LINEAR_FROM ? LINEAR_FROM : low;
    const Exp e = exp_parts(c < 0.0f ? c : 0.0f - c, 0.0f);
    const Pair d = one_plus(e);
    const float y = (c > 0.0f ? c : 0.0f) + ln_parts(d.hi, quotient({d.lo, 0.0f}, {d.hi, 0.0f}));
    const float tail = c < 0.0f && e.n < -26 ? scale2(e.p.hi, e.n) : y;
    return keep_nan(x, x > LINEAR_FROM ? x : tail);
}

// The hyperbolic tangent: a polynomial near zero, 1 - 2 e^-2|x| / (1 + e^-2|x|) elsewhere.
__device__ inline float exact_tanh(float x) {
    const unsigned b = __float_as_uint(x);
    const float magnitude = __uint_as_float(b & 0x7fffffffu);
    const float t = magnitude > 10.0f ? 10.0f : magnitude;
    const float z = t * t;
    const float q4 = TANH_4 + product(z, TANH_5);
    const float q3 = TANH_3 + product(z, q4);
    const float q2 = TANH_2 + product(z, q3);
    const float q1 = TANH_1 + product(z, q2);
    const float q0 = TANH_0 + product(z, q1);
    const float near = t + product(t * z, q0);
    // exact: a power of two
    const float far = 1.0f - logistic(2.0f, -2.0f * t, 0.0f);
    const unsigned y = __float_as_uint(scale2(t < TANH_SMALL ? near : far, 0));
    return keep_nan(x, __uint_as_float(y | (y == 0u ? 0u : b & 0x80000000u)));
}
