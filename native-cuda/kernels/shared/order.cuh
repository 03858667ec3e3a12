// Logits as numbers, and the order of numbers.
#pragma once

// Orders floats as numbers; NaN gives 0, the lowest; the zeros are equal.
__device__ inline unsigned order_key(float value) {
    const unsigned bits = __float_as_uint(value);
    const unsigned magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) {
        return 0;
    }
    if (magnitude == 0) {
        return 0x80000000;
    }
    return bits >> 31 == 1 ? ~bits : bits | 0x80000000;
}

// Whether an id with a logit of these bits cannot be drawn: NaN or -infinity.
__device__ inline bool is_out(unsigned logit) {
    return (logit & 0x7fffffff) > 0x7f800000 || logit == 0xff800000;
}

// A logit as a number; magnitudes above 2^64 count as 2^64.
__device__ inline float number_of(unsigned logit) {
    return __uint_as_float((logit & 0x80000000) | min(logit & 0x7fffffff, 0x5f800000u));
}

// The number of an order key; not of 0.
__device__ inline float value_of(unsigned key) {
    return __uint_as_float(key >> 31 == 1 ? key & 0x7fffffff : ~key);
}
