// Scales of a cache of type q8_0. A head's region of a page has 17 head_dim words: int8 values, then an f16 scale for each 32 of them,
// [head_dim / 32, PAGE]. Two positions share a word of scales.
const NAN_SCALE: u32 = 0x7e00u;

// The value of a scale's f16 bits; -1 for a block that holds a NaN. Not `unpack2x16float`: a scale may be a denormal half.
fn scale_of(bits: u32) -> f32 {
    let normal = bitcast<f32>((bits << 13u) + 0x38000000u);
    let scale = select(normal, f32(bits) * 5.9604644775390625e-8, bits < 0x400u);
    return select(scale, -1.0, bits == NAN_SCALE);
}
