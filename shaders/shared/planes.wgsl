// The planes of a part of a matrix (docs/numerics.md, "Planes"). Offsets and strides of params are u32, quants_stride is vec4.
// [rows, quants_stride]
@group(0) @binding(2) var<storage, read> quants: array<vec4<u32>>;
// high [rows, high_stride], scales [rows, scales_stride], supers [rows, supers_stride], one after another
@group(0) @binding(3) var<storage, read> planes: array<u32>;

// The 16 bits of entry `i` of a row of `scales`.
fn scale16(row: u32, i: u32) -> u32 {
    let word = planes[params.scales_offset + row * params.scales_stride + i / 2u];
    return (word >> (16u * (i % 2u))) & 0xffffu;
}

// The 32 bits of entry `i` of a row of `scales`.
fn scale32(row: u32, i: u32) -> u32 {
    return planes[params.scales_offset + row * params.scales_stride + i];
}

// The f16 whose bits are the low 16 of `bits`.
fn half_of(bits: u32) -> f32 {
    return unpack2x16float(bits).x;
}
