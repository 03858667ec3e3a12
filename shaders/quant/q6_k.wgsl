// Q6_K: nibbles, two high bits, i8 scales of both halves a block, f16 d a superblock.
const OFFSET: i32 = 0;
const HAS_MIN: bool = false;
const HAS_SUBS: bool = true;
// The two lowest bits of each byte.
const PAIRS: vec4<u32> = vec4<u32>(0x03030303u);

// Each byte (0 to 63) minus 32, as int8.
fn centred(q: vec4<u32>) -> vec4<u32> {
    return ((q | vec4<u32>(0x80808080u)) - vec4<u32>(0x20202020u)) ^ vec4<u32>(0x80808080u);
}

fn load_block(row: u32, place: u32, block: u32) -> Block {
    let q = quants[row * params.quants_stride + place];
    let bits = params.high_offset + row * params.high_stride + 2u * place;
    let shifts = vec4<u32>(0u, 2u, 4u, 6u);
    let low = (q & NIBBLES) | (((vec4<u32>(planes[bits]) >> shifts) & PAIRS) << vec4<u32>(4u));
    let high = ((q >> vec4<u32>(4u)) & NIBBLES) | (((vec4<u32>(planes[bits + 1u]) >> shifts) & PAIRS) << vec4<u32>(4u));
    // Padding blocks read the row's last entry; their scales are 0.
    let entry = min(block / 8u, 2u * params.supers_stride - 1u);
    let supers = planes[params.supers_offset + row * params.supers_stride + entry / 2u];
    let d = half_of(supers >> (16u * (entry % 2u)));
    let scales = vec2<i32>(vec2<u32>(scale16(row, place)) << vec2<u32>(24u, 16u)) >> vec2<u32>(24u);
    return Block(centred(low), centred(high), d, 0.0, scales);
}
