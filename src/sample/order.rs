//! Floats as unsigned integers of the same order.

/// An unsigned key that orders floats as numbers; NaN gives 0, the lowest; the zeros are equal.
pub fn order_key(value: f32) -> u32 {
    let bits = value.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    if magnitude > 0x7f80_0000 {
        0
    } else if magnitude == 0 {
        0x8000_0000
    } else if bits >> 31 == 1 {
        !bits
    } else {
        bits | 0x8000_0000
    }
}
