// Q4_0: nibbles, f16 d.
const OFFSET: i32 = 8;
const HAS_MIN: bool = false;
const HAS_SUBS: bool = false;

fn load_block(row: u32, place: u32, block: u32) -> Block {
    let q = quants[row * params.quants_stride + place];
    let d = half_of(scale16(row, place));
    return Block(q & NIBBLES, (q >> vec4<u32>(4u)) & NIBBLES, d, 0.0, vec2<i32>(1));
}
