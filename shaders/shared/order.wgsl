// Orders floats as numbers; NaN gives 0, the lowest; the zeros are equal.
fn order_key(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    let magnitude = bits & 0x7fffffffu;
    if magnitude > 0x7f800000u {
        return 0u;
    }
    if magnitude == 0u {
        return 0x80000000u;
    }
    return select(bits | 0x80000000u, ~bits, (bits >> 31u) == 1u);
}

// Whether an id with a logit of these bits cannot be drawn: NaN or -infinity.
fn is_out(logit: u32) -> bool {
    return (logit & 0x7fffffffu) > 0x7f800000u || logit == 0xff800000u;
}

// A logit as a number; magnitudes above 2^64 count as 2^64.
fn number_of(logit: u32) -> f32 {
    return bitcast<f32>((logit & 0x80000000u) | min(logit & 0x7fffffffu, 0x5f800000u));
}

// The number of an order key; not of 0.
fn value_of(key: u32) -> f32 {
    return bitcast<f32>(select(~key, key & 0x7fffffffu, (key >> 31u) == 1u));
}
