// Q5_1: nibbles, fifth bits, f16 d and m.
const OFFSET: i32 = 0;
const HAS_MIN: bool = true;
const HAS_SUBS: bool = false;
// The lowest bit of each byte.
const ONES: vec4<u32> = vec4<u32>(0x01010101u);

fn load_block(row: u32, place: u32, block: u32) -> Block {
    let q = quants[row * params.quants_stride + place];
    let bits = vec4<u32>(planes[params.high_offset + row * params.high_stride + place]);
    let low = (q & NIBBLES) | (((bits >> vec4<u32>(0u, 1u, 2u, 3u)) & ONES) << vec4<u32>(4u));
    let high = ((q >> vec4<u32>(4u)) & NIBBLES) | (((bits >> vec4<u32>(4u, 5u, 6u, 7u)) & ONES) << vec4<u32>(4u));
    let dm = unpack2x16float(scale32(row, place));
    return Block(low, high, dm.x, dm.y, vec2<i32>(1));
}
